"""The Spark application that a query belongs to: its other queries, and how long it took to start.

Two queries of one application that join one group with one subscription do so mostly by mistake:
one DataFrame with two sinks is two queries, and so two members that share the topics. Each runner
publishes what it is on this host, so the one that begins later sees the other.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_groups.protocol.subscription import Subscription
from spark_groups.runtime.engine import suspension_clock
from spark_groups.runtime.snapshots import read_snapshots

logger = logging.getLogger(__name__)
STARTS_WITHIN_S: Final = 900.0
"""A query that begins later was not part of its application's start, and tells nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What a runner says of itself, so that others of its application know it."""

    jvm_pid: int
    subscription: Subscription
    instance_id: str | None

    def as_plain(self) -> dict[str, Any]:
        """Return it as a part of the member's snapshot."""
        return {
            "jvm_pid": self.jvm_pid,
            "instance_id": self.instance_id,
            "subscribed_topic_names": list(self.subscription.topic_names),
            "subscribed_topic_regex": self.subscription.topic_regex,
        }


def siblings(
    views: Iterable[Mapping[str, Any]], mine: Application, *, pid: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the snapshots of other queries that share their topics with this one unasked."""
    wanted = mine.as_plain()
    for view in views:
        is_same = all(view.get(name) == value for name, value in wanted.items())
        if is_same and view.get("pid") != pid and not view.get("is_ending"):
            yield view


def warn_of_siblings(group_id: str, mine: Application, directory: Path | None = None) -> None:
    """Look for such queries, once and in the background, and warn of them.

    Args:
        directory: Where snapshots are; None means the user's own directory.
    """
    if mine.instance_id is not None:
        # Whoever names its members means them to share.
        return
    threading.Thread(
        target=_warn, args=(group_id, mine, directory), name="kafka-group-siblings", daemon=True
    ).start()


def _warn(group_id: str, mine: Application, directory: Path | None) -> None:
    for view in siblings(read_snapshots(group_id, directory=directory), mine, pid=os.getpid()):
        logger.warning(
            "group %s: another query of this application reads the same topics as a member of its"
            " own (runner %s, member %s), so each of the two gets only a part of the rows. One"
            " DataFrame with two sinks is two queries: write both sinks from one foreachBatch, or"
            " load it once for each, with a group of its own. If they are meant to share, give"
            " each a kafka.group.instance.id",
            group_id,
            view.get("pid"),
            view.get("member_id", "not joined yet"),
        )


def restart_s(jvm_pid: int, *, processes: Path = Path("/proc")) -> float | None:
    """Return how many seconds the application took to begin this query.

    Returns:
        None where the system does not tell, and where the JVM is too old for it to be its start.
    """
    try:
        told = (processes / str(jvm_pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The name may have spaces and parentheses; the start is the 20th field behind it.
        started_ticks = int(told.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    age_s = suspension_clock() - started_ticks / os.sysconf("SC_CLK_TCK")
    return age_s if 0 <= age_s <= STARTS_WITHIN_S else None
