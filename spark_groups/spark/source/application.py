"""The Spark application of a query: its name, sibling queries, and the time of its start.

Two queries of one application with the same group and subscription are usually a mistake: one
DataFrame with two sinks is two queries, and so two members that divide the topics. Queries with
client ids of their own come from two DataFrames, and were meant. Each runner publishes its
application in its snapshot, so a query that starts later detects the first.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark.core.files import SparkFiles

from spark_groups.group.member.subscription import Subscription
from spark_groups.runtime.engine import suspension_clock
from spark_groups.runtime.snapshot_sockets import read_snapshots

logger = logging.getLogger(__name__)
STARTS_WITHIN_S: Final = 900.0
"""A start that took longer says nothing about the next one."""
CLIENT_ID_MAX: Final = 100
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
"""What Kafka replaces in the names of its metrics by client id."""
_NAME: Final = "spark.app.name="


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The identity that a runner publishes for its siblings."""

    jvm_pid: int
    subscription: Subscription
    instance_id: str | None
    client_id: str | None = None
    """Only one that the options name."""

    def as_plain(self) -> dict[str, Any]:
        """Return the fields for the member's snapshot."""
        return {
            "jvm_pid": self.jvm_pid,
            "instance_id": self.instance_id,
            "named_client_id": self.client_id,
            "subscribed_topic_names": list(self.subscription.topic_names),
            "subscribed_topic_regex": self.subscription.topic_regex,
        }


def siblings(
    views: Iterable[Mapping[str, Any]], mine: Application, *, pid: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the snapshots of other queries with the same application, group and options."""
    wanted = mine.as_plain()
    for view in views:
        is_same = all(view.get(name) == value for name, value in wanted.items())
        if is_same and view.get("pid") != pid and not view.get("is_ending"):
            yield view


def warn_of_siblings(group_id: str, mine: Application, directory: Path | None = None) -> None:
    """Warn of siblings, checked once in the background, after this query is published.

    Args:
        directory: Where snapshots are; None means the user's own directory.
    """
    if mine.instance_id is not None:
        # With instance IDs, sharing is intended.
        return
    threading.Thread(
        target=_warn, args=(group_id, mine, directory), name="kafka-group-siblings", daemon=True
    ).start()


def _warn(group_id: str, mine: Application, directory: Path | None) -> None:
    for view in siblings(read_snapshots(group_id, directory=directory), mine, pid=os.getpid()):
        logger.warning(
            "group %s: another query of this application reads the same topics as a separate member"
            " (runner %s, member %s), so each query reads only part of the partitions. A DataFrame"
            " with two sinks is two queries: write both sinks from one foreachBatch, or load the"
            " source once per sink, each with its own group. If sharing is intended, set a"
            " kafka.group.instance.id for each",
            group_id,
            view.get("pid"),
            view.get("member_id", "not joined yet"),
        )


def restart_s(
    jvm_pid: int,
    runner_pid: int,
    session_began_at: float | None,
    *,
    processes: Path = Path("/proc"),
) -> float | None:
    """Return the seconds that a restart takes; None if unknown or too long.

    They are those from the JVM's start to the session's, and from the start of the query's runner
    until now. Between the two the session may simply have been open.

    Args:
        session_began_at: When the session began, in seconds of the clock of `time.time`; None: the
            application's part is unknown, and left out.
    """
    jvm_s, runner_s = _age_s(jvm_pid, processes), _age_s(runner_pid, processes)
    if jvm_s is None or runner_s is None:
        return None
    session_s = jvm_s if session_began_at is None else time.time() - session_began_at
    took_s = max(0.0, jvm_s - session_s) + runner_s
    return took_s if took_s <= STARTS_WITHIN_S else None


def session_began_at() -> float | None:
    """Return when Spark created the directory of the session's files; None: unknown.

    It changes with each file that is added, its parent when it was created.
    """
    root = SparkFiles._root_directory
    try:
        both = (root, os.path.dirname(root)) if root else ()
        return min((os.stat(each).st_mtime for each in both), default=None)
    except OSError:
        return None


def _age_s(pid: int, processes: Path) -> float | None:
    """Return the seconds since a process began."""
    try:
        status = (processes / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The process name may contain spaces and parentheses; the start time is field 20 after it.
        started_ticks = int(status.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, suspension_clock() - started_ticks / os.sysconf("SC_CLK_TCK"))


def application_name(jvm_pid: int, *, processes: Path = Path("/proc")) -> str:
    """Return the name of the Spark application in the command line of its JVM; empty: unknown.

    A name that a program given to spark-submit chooses itself is not there: a listener knows it.
    """
    try:
        command = (processes / str(jvm_pid) / "cmdline").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    found = ""
    for word, value in pairwise(command.split("\0")):
        if word == "--name":
            found = value
        elif word == "--conf" and value.startswith(_NAME):
            found = value.removeprefix(_NAME)
    return found


def as_client_id(name: str) -> str | None:
    """Return the name of an application in the characters of a client id; None: none is left."""
    return _ILLEGAL.sub("-", name).strip("-")[:CLIENT_ID_MAX] or None
