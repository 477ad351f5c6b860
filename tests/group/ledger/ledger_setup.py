"""Shared by test_ledger.py and other tests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.ledger import Ledger, Phase
from spark_groups.types import Assignment, BatchPlan, OffsetRange, TopicIdPartition

TOPIC = uuid.UUID(int=1)


def key(partition: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, partition)


def parts(*indexes: int) -> Assignment:
    return Assignment.of({TOPIC: indexes})


def span(partition: int, from_offset: int, until_offset: int) -> OffsetRange:
    return OffsetRange(TOPIC, "orders", partition, from_offset, until_offset)


def plan(*ranges: OffsetRange, member_id: str = "m1", epoch: int = 3) -> BatchPlan:
    """Return a plan whose ranges stand on the commits of `ready`."""
    marks = tuple(f"at{each.from_offset}" for each in ranges)
    return BatchPlan("g", member_id, epoch, ranges, marks=marks)


def ready(
    ledger: Ledger, committed: dict[int, int], marks: Mapping[int, str] | None = None
) -> None:
    """Let partitions come to READY at their committed offsets."""
    for partition, offset in committed.items():
        owned = ledger.owned[key(partition)]
        owned.phase = Phase.READY
        owned.position = owned.committed_offset = offset
        owned.mark = (marks or {}).get(partition, f"at{offset}")


def owning(committed: dict[int, int]) -> Ledger:
    ledger = Ledger("run")
    ledger.assign(parts(*committed), 3)
    ready(ledger, committed)
    return ledger


def commits(found: tuple[PendingCommit, ...]) -> dict[int, tuple[int, int]]:
    """Offset and epoch by partition."""
    return {each.key.partition: (each.committed_offset, each.member_epoch) for each in found}
