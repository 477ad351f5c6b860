"""`spark_groups.figures(query)`: snapshots of a query's group members, on the driver.

Spark 4.2 requests no metrics from a Python source: `sources[].metrics` of its progress stays empty,
and observed metrics are computed from rows. So the figures come from the query's runner, over its
snapshot socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.group.ledger.plan_text import planner_of
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.snapshot import MemberSnapshot
from spark_groups.monitoring.health import assess
from spark_groups.runtime.snapshot_sockets import read_snapshots

_NESTED: Final = ("awaited_answers", "pending_ranges", "in_flight", "partitions", "tally")
"""Parts of a snapshot that say nothing about health."""


def figures(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the snapshot of each group member of a query, with its `health`.

    Returns:
        One per kafka-group source of a query on this machine, as this user; none before the first
        batch was reported.
    """
    progress = query.lastProgress
    ends = [] if progress is None else [str(source.endOffset) for source in progress.sources]
    member_ids = {planner_of(end) for end in ends} - {None}
    return [
        {**view, "health": assess(_parsed(view)).as_plain()}
        for view in read_snapshots()
        # The batch may have been planned under an earlier member ID.
        if member_ids & {*view.get("tally", {}).get("joined_as", ())}
    ]


def _parsed(view: Mapping[str, Any]) -> MemberSnapshot:
    """Return what another process, maybe of another version, wrote about a member's health."""
    names = {field_.name for field_ in fields(MemberSnapshot)} - {*_NESTED}
    known = {name: value for name, value in view.items() if name in names}
    # A state that this version does not know counts as one inside the group.
    state = MemberState.__members__.get(str(view.get("state")), MemberState.STABLE)
    return MemberSnapshot(**{**known, "state": state})
