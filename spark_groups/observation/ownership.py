"""The observed owners of each partition over time, and moves between owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark_groups.observation.group_events import EventKind, GroupEvent, member_label
from spark_groups.observation.lag_trends import PartitionKey
from spark_groups.observation.plain_values import partition_ranges
from spark_groups.observation.views import GroupView, PartitionView
from spark_groups.types import TopicPartition

SPANS_MAX: Final = 4_000
"""The limit for a group, divided among its partitions."""
PARTITION_SPANS_MAX: Final = 50
PARTITION_SPANS_MIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSpan:
    """A time during which one member owned a partition.

    Args:
        first_member_epoch: Its epoch at the start; None: unknown.
        last_member_epoch: Its latest epoch.
        is_revoking: Whether it must revoke the partition.
        from_s: The first poll that showed it, in seconds since 1970.
        until_s: The first poll that no longer showed it; None: it is the current one.
    """

    member_id: str
    client_id: str
    first_member_epoch: int | None
    last_member_epoch: int | None
    is_revoking: bool
    from_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Move:
    """A partition that changed its owner.

    Args:
        took_s: Seconds since it was first seen moving; None: it never was.
    """

    partition: TopicPartition
    took_s: float | None


class Ownership:
    """The owners of every partition of a group, and the partitions that are moving."""

    def __init__(self) -> None:
        self._spans: dict[PartitionKey, deque[OwnershipSpan]] = {}
        self._unsettled_since: dict[PartitionKey, float] = {}
        self._has_view = False

    def spans(self, key: PartitionKey) -> tuple[OwnershipSpan, ...]:
        """Return the owners of a partition, the earliest first."""
        return tuple(self._spans.get(key, ()))

    def unsettled_since(self, key: PartitionKey) -> float | None:
        """Return when a partition began to move or lost its owner; None: it has settled."""
        return self._unsettled_since.get(key)

    def look(self, view: GroupView, at_s: float) -> list[GroupEvent]:
        """Record the owners in a view, and return events; none for the first view."""
        here = {(each.topic_id, each.partition) for each in view.partitions}
        self._spans = {key: self._spans.get(key, deque()) for key in here}
        self._unsettled_since = {k: s for k, s in self._unsettled_since.items() if k in here}
        labels = {member.member_id: member.client_id for member in view.members}
        released: dict[str, list[TopicPartition]] = {}
        moved: dict[tuple[str | None, str], list[_Move]] = {}
        for each in view.partitions:
            key = each.topic_id, each.partition
            spans = self._spans[key]
            last = spans[-1] if spans else None
            if last is not None:
                labels.setdefault(last.member_id, last.client_id)
            name = TopicPartition(each.topic, each.partition)
            took_s = self._took_s(key, each, last, at_s)
            if each.owner is None and last is not None and last.until_s is None:
                released.setdefault(last.member_id, []).append(name)
            if each.owner is not None and (last is None or last.member_id != each.owner):
                source = None if last is None else last.member_id
                moved.setdefault((source, each.owner), []).append(_Move(name, took_s))
        self._extend_spans(view, at_s)
        first, self._has_view = not self._has_view, True
        if first:
            return []
        return [*_released(released, labels, at_s), *_moved(moved, labels, at_s)]

    def _took_s(
        self, key: PartitionKey, partition: PartitionView, last: OwnershipSpan | None, at_s: float
    ) -> float | None:
        """Track since when a partition moves; return for how long it has been moving."""
        is_without_owner = partition.owner is None and last is not None
        if partition.moves_to is not None or is_without_owner:
            began_s = self._unsettled_since.setdefault(key, at_s)
        else:
            began_s = self._unsettled_since.pop(key, at_s)
        return round(at_s - began_s, 3) if began_s < at_s else None

    def _extend_spans(self, view: GroupView, at_s: float) -> None:
        members = {member.member_id: member for member in view.members}
        revoking = {
            (member.member_id, partition)
            for member in view.members
            for partition in member.revoking
        }
        share = SPANS_MAX // max(1, len(view.partitions))
        limit = max(PARTITION_SPANS_MIN, min(PARTITION_SPANS_MAX, share))
        for each in view.partitions:
            spans = self._spans[each.topic_id, each.partition]
            owner = None if each.owner is None else members.get(each.owner)
            member_epoch = None if owner is None else owner.member_epoch
            name = TopicPartition(each.topic, each.partition)
            is_revoking = each.moves_to is not None or (each.owner, name) in revoking
            last = spans[-1] if spans and spans[-1].until_s is None else None
            if last is not None and (last.member_id, last.is_revoking) == (each.owner, is_revoking):
                if last.last_member_epoch != member_epoch:
                    spans[-1] = replace(last, last_member_epoch=member_epoch)
                continue
            if last is not None:
                spans[-1] = replace(last, until_s=at_s)
            if each.owner is not None:
                spans.append(
                    OwnershipSpan(
                        member_id=each.owner,
                        client_id="" if owner is None else owner.client_id,
                        first_member_epoch=member_epoch,
                        last_member_epoch=member_epoch,
                        is_revoking=is_revoking,
                        from_s=at_s,
                    )
                )
            while len(spans) > limit:
                spans.popleft()


def _released(
    released: dict[str, list[TopicPartition]], labels: dict[str, str], at_s: float
) -> Iterator[GroupEvent]:
    for member_id, partitions in released.items():
        label = member_label(labels.get(member_id, ""), member_id)
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.PARTITIONS_RELEASED,
            text=f"{partition_ranges(partitions)} without an owner, last {label}",
            from_member_id=member_id,
            partitions=tuple(partitions),
        )


def _moved(
    moved: dict[tuple[str | None, str], list[_Move]], labels: dict[str, str], at_s: float
) -> Iterator[GroupEvent]:
    for (source, owner), moves in moved.items():
        partitions = tuple(move.partition for move in moves)
        took_s = max((move.took_s for move in moves if move.took_s is not None), default=None)
        what = partition_ranges(partitions)
        to = member_label(labels.get(owner, ""), owner)
        text = f"{what} assigned to {to}"
        if source is not None:
            text = f"{what} moved from {member_label(labels.get(source, ''), source)} to {to}"
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.PARTITIONS_MOVED,
            text=text if took_s is None else f"{text} in {took_s:.1f} s",
            member_id=owner,
            from_member_id=source,
            partitions=partitions,
            took_s=took_s,
        )
