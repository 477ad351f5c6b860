"""A consumer group in memory: exactly what its records say, and what follows from them.

Only `apply` changes a group. What a record replaces can be asked for before (`value_of`), which is
how a failed append is taken back, and all records together (`records`) are what compaction keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeVar

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.member import GroupMember, ReconciliationState
from spark_groups.lab.coordinator.records import Record
from spark_groups.types import TopicIdPartition

K = TypeVar("K")
V = TypeVar("V")
_NOT_RECONCILED: Final = r.CurrentAssignmentValue(
    member_epoch=0,
    previous_member_epoch=-1,
    state=ReconciliationState.STABLE,
    assigned=MappingProxyType({}),
    pending_revocation=MappingProxyType({}),
)
"""What a member has that was never told anything."""


class GroupState(Enum):
    """The state of a group; the values are what Describe and ListGroups answer."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ConsumerGroup:
    """One consumer group; two are equal if their records are.

    Args:
        first_epoch: Its group epoch and its assignment epoch while no record says another.
        is_bare: Whether it is there without a record.
        metadata: Its epoch and the hash of its topics; None if it is no consumer group (any more).
        partition_metadata: Its topics, where they are kept in a record of their own.
        target_metadata: The epoch of its target.
        members: By member id; their order means nothing.
        regexes: Patterns that were resolved.
        offsets: Committed offsets, by topic name and partition.
        instances: Which member took an instance id last, also if it has another one since; in no
            record (ConsumerGroup.staticMembers).
        most_members: How many members it had at once, at most; in no record (the size of Kafka's
            table of members).
        counted_regexes: What patterns were resolved to when a member last changed; in no record.
            Whether all members subscribe alike is judged by that (ConsumerGroup.subscriptionType).
        topics_version: The version of the topics that its subscriptions were last compared with;
            in no record, so that every coordinator compares anew (Kafka's metadata deadline).
    """

    group_id: str
    first_epoch: int = field(default=0, compare=False)
    is_bare: bool = field(default=False, compare=False)
    metadata: r.GroupMetadataValue | None = None
    partition_metadata: r.PartitionMetadataValue | None = None
    target_metadata: r.TargetMetadataValue | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    targets: dict[str, r.TargetMemberValue] = field(default_factory=dict)
    regexes: dict[str, r.RegularExpressionValue] = field(default_factory=dict)
    offsets: dict[tuple[str, int], r.OffsetCommitValue] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict, compare=False)
    most_members: int = field(default=0, compare=False)
    counted_regexes: dict[str, r.RegularExpressionValue] = field(
        default_factory=dict, compare=False
    )
    topics_version: int = field(default=-1, compare=False)
    _values: dict[r.Key, r.Value] = field(default_factory=dict)

    @property
    def is_empty_of_records(self) -> bool:
        return not self._values

    @property
    def exists(self) -> bool:
        """True if there is such a group, of whatever kind."""
        return self.is_bare or not self.is_empty_of_records

    @property
    def is_consumer_group(self) -> bool:
        """False if it does not exist, or only has offsets of nobody's."""
        return self.metadata is not None or bool(self.members)

    @property
    def group_epoch(self) -> int:
        return self.metadata.group_epoch if self.metadata else self.first_epoch

    @property
    def assignment_epoch(self) -> int:
        target = self.target_metadata
        return target.assignment_epoch if target else self.first_epoch

    @property
    def state(self) -> GroupState:
        """Derived from the epochs; nothing sets it (ConsumerGroup.maybeUpdateGroupState)."""
        if not self.members:
            return GroupState.EMPTY
        assignment_epoch = self.assignment_epoch
        if self.group_epoch > assignment_epoch:
            return GroupState.ASSIGNING
        for each in self.members.values():
            if not each.is_reconciled_to(assignment_epoch):
                return GroupState.RECONCILING
        return GroupState.STABLE

    def static_member(self, instance_id: str) -> GroupMember | None:
        """Return the member that has an instance id."""
        member = self.members.get(self.instances.get(instance_id, ""))
        return member if member and member.instance_id == instance_id else None

    def held_partitions(self) -> set[TopicIdPartition]:
        """Return what any member has, or has not given up yet."""
        return {
            key
            for member in self.members.values()
            for key in (*member.assigned, *member.pending_revocation)
        }

    def value_of(self, key: r.Key) -> r.Value | None:
        """Return the value that the group has for a key, None if it has none."""
        return self._values.get(key)

    def records(self) -> Iterator[Record]:
        """Yield one record for every key that has a value: what a compacted log holds."""
        return (Record(key, value) for key, value in self._values.items())

    def apply(self, record: Record) -> None:
        """Take a record: the only way in which a group changes.

        Any order of records that ends with the same value for each key gives the same group, so
        that compaction cannot change what a replay gives.
        """
        key, value = record.key, record.value
        _put(self._values, key, value)
        match key:
            case r.OffsetCommitKey():
                # Most records are offsets.
                assert value is None or isinstance(value, r.OffsetCommitValue)
                _put(self.offsets, (key.topic, key.partition), value)
            case r.GroupMetadataKey():
                assert value is None or isinstance(value, r.GroupMetadataValue)
                self.metadata = value
            case r.PartitionMetadataKey():
                assert value is None or isinstance(value, r.PartitionMetadataValue)
                self.partition_metadata = value
            case r.TargetMetadataKey():
                assert value is None or isinstance(value, r.TargetMetadataValue)
                self.target_metadata = value
            case r.MemberMetadataKey() | r.CurrentAssignmentKey():
                self._rebuild(key.member_id)
            case r.TargetMemberKey():
                assert value is None or isinstance(value, r.TargetMemberValue)
                _put(self.targets, key.member_id, value)
            case r.RegularExpressionKey():
                assert value is None or isinstance(value, r.RegularExpressionValue)
                _put(self.regexes, key.regular_expression, value)

    def _rebuild(self, member_id: str) -> None:
        self.counted_regexes = dict(self.regexes)
        told = self._values.get(r.MemberMetadataKey(self.group_id, member_id))
        current = self._values.get(r.CurrentAssignmentKey(self.group_id, member_id))
        if not isinstance(told, r.MemberMetadataValue):
            gone = self.members.pop(member_id, None)
            if gone and gone.instance_id is not None:
                self.instances.pop(gone.instance_id, None)
            return
        if not isinstance(current, r.CurrentAssignmentValue):
            current = _NOT_RECONCILED
        self.members[member_id] = GroupMember(
            member_id=member_id,
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=current.state,
            instance_id=told.instance_id,
            rack_id=told.rack_id,
            client_id=told.client_id,
            client_host=told.client_host,
            rebalance_timeout_ms=told.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(told.subscribed_topic_names),
            subscribed_topic_regex=told.subscribed_topic_regex,
            server_assignor=told.server_assignor,
            client_assignors=told.client_assignors,
            assigned=current.assigned,
            pending_revocation=current.pending_revocation,
        )
        self.most_members = max(self.most_members, len(self.members))
        if told.instance_id is not None:
            self.instances[told.instance_id] = member_id


def _put(values: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
