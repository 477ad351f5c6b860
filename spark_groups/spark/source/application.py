"""The Spark application of a query: sibling queries, and the time of its start.

Two queries of one application with the same group and subscription are usually a mistake: one
DataFrame with two sinks is two queries, and so two members that divide the topics. Each runner
publishes its application in its snapshot, so a query that starts later detects the first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_groups.group.member.subscription import Subscription
from spark_groups.runtime.engine import suspension_clock
from spark_groups.runtime.snapshot_sockets import read_snapshots

logger = logging.getLogger(__name__)
STARTS_WITHIN_S: Final = 900.0
"""A query that starts later says nothing about how long the application takes to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The identity that a runner publishes for its siblings."""

    jvm_pid: int
    subscription: Subscription
    instance_id: str | None

    def as_plain(self) -> dict[str, Any]:
        """Return the fields for the member's snapshot."""
        return {
            "jvm_pid": self.jvm_pid,
            "instance_id": self.instance_id,
            "subscribed_topic_names": list(self.subscription.topic_names),
            "subscribed_topic_regex": self.subscription.topic_regex,
        }


def siblings(
    views: Iterable[Mapping[str, Any]], mine: Application, *, pid: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the snapshots of other queries with the same application, group and subscription."""
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


def restart_s(jvm_pid: int, *, processes: Path = Path("/proc")) -> float | None:
    """Return the seconds from the JVM's start to this query's; None if unknown or too long."""
    try:
        status = (processes / str(jvm_pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The process name may contain spaces and parentheses; the start time is field 20 after it.
        started_ticks = int(status.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    age_s = suspension_clock() - started_ticks / os.sysconf("SC_CLK_TCK")
    return age_s if 0 <= age_s <= STARTS_WITHIN_S else None
