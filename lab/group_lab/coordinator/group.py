"""A group in memory, rebuilt from its records: a consumer group, or a classic one with its offsets.

Only `apply` changes a group, and `Memory.set_classic` its classic part. `value_of` returns the
value a record replaces, which undoes a failed append; `records` returns all records, as compaction
keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeVar

from group_lab.coordinator import records as r
from group_lab.coordinator.classic.group import ClassicGroup, ClassicState
from group_lab.coordinator.design_0_9.group import DesignGroup
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.records import Record
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
"""The state of a member before its first assignment."""


_TOMBSTONE_ORDER: Final = (
    r.OffsetCommitKey,
    r.CurrentAssignmentKey,
    r.TargetMemberKey,
    r.TargetMetadataKey,
    r.MemberMetadataKey,
    r.RegularExpressionKey,
    r.PartitionMetadataKey,
    r.GroupMetadataKey,
    r.ClassicGroupMetadataKey,
    r.DesignGroupKey,
)
"""Offsets first, then members and targets, then the group."""


class GroupState(Enum):
    """The state of a group; the values are those of Describe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ConsumerGroup:
    """One group; groups are equal if their records are.

    Args:
        first_epoch: Its group epoch and assignment epoch before the first record of them.
        is_bare: Whether it exists without records.
        metadata: Its epoch and metadata hash; None if it is no consumer group (any more).
        partition_metadata: Its topics, where they have a record of their own.
        members: By member id, in no meaningful order.
        regexes: Resolved patterns.
        offsets: Committed offsets, by topic name and partition.
        instances: The latest member with an instance id, even if it has another now; in no record
            (ConsumerGroup.staticMembers).
        room: The number of members that Kafka's table of them has grown for; in no record. Each put
            makes room for one member more than there are, even if it replaces one.
        counted_regexes: The resolved patterns at the last change of a member; in no record. They
            decide whether all members subscribe alike (ConsumerGroup.subscriptionType).
        classic_metadata: The last recorded generation of a classic group.
        classic: The classic group as it is now; None for a consumer group, and for a group that
            only has offsets until a member joins.
        design_generation: The last recorded generation of a group of the 0.9 design.
        design: That group as it is now.
        topics_version: Metadata version of the last comparison with its subscriptions; in no
            record, so each coordinator compares again (Kafka's metadata deadline).
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
    room: int = field(default=0, compare=False)
    counted_regexes: dict[str, r.RegularExpressionValue] = field(
        default_factory=dict, compare=False
    )
    topics_version: int = field(default=-1, compare=False)
    classic_metadata: r.ClassicGroupMetadataValue | None = None
    classic: ClassicGroup | None = field(default=None, compare=False)
    design_generation: r.DesignGenerationValue | None = None
    design: DesignGroup | None = field(default=None, compare=False)
    _values: dict[r.Key, r.Value] = field(default_factory=dict)

    @property
    def is_empty_of_records(self) -> bool:
        return not self._values

    @property
    def in_memory(self) -> ClassicGroup | DesignGroup | None:
        """The group as it is now, if its members form generations."""
        return self.classic or self.design

    @property
    def exists(self) -> bool:
        """True for a group of any type."""
        return self.is_bare or self.in_memory is not None or not self.is_empty_of_records

    @property
    def is_consumer_group(self) -> bool:
        """False if it does not exist or only has offsets."""
        return self.metadata is not None or bool(self.members)

    @property
    def is_empty(self) -> bool:
        """True without members, in a classic group also without a rebalance under way.

        False in the 0.9 design: nothing deletes a group there.
        """
        if self.design is not None:
            return False
        return not self.members and (
            self.classic is None or self.classic.state is ClassicState.EMPTY
        )

    @property
    def group_epoch(self) -> int:
        return self.metadata.group_epoch if self.metadata else self.first_epoch

    @property
    def assignment_epoch(self) -> int:
        target = self.target_metadata
        return target.assignment_epoch if target else self.first_epoch

    @property
    def state(self) -> GroupState:
        """Derived from epochs and members (ConsumerGroup.maybeUpdateGroupState)."""
        if not self.members:
            return GroupState.EMPTY
        assignment_epoch = self.assignment_epoch
        if self.group_epoch > assignment_epoch:
            return GroupState.ASSIGNING
        for member in self.members.values():
            if not member.is_reconciled_to(assignment_epoch):
                return GroupState.RECONCILING
        return GroupState.STABLE

    def static_member(self, instance_id: str) -> GroupMember | None:
        """Return the member that has an instance id."""
        member = self.members.get(self.instances.get(instance_id, ""))
        return member if member and member.instance_id == instance_id else None

    def held_partitions(self) -> set[TopicIdPartition]:
        """Return the partitions that members have or still revoke."""
        return {
            key
            for member in self.members.values()
            for key in (*member.assigned, *member.pending_revocation)
        }

    def value_of(self, key: r.Key) -> r.Value | None:
        """Return the current value of a key."""
        return self._values.get(key)

    def records(self) -> Iterator[Record]:
        """Yield one record for each key with a value, as in a compacted log."""
        return (Record(key, value) for key, value in self._values.items())

    def tombstones(self) -> tuple[Record, ...]:
        """Return the tombstones of all records (Group.createGroupTombstoneRecords)."""
        group_key = r.GroupMetadataKey if self.is_consumer_group else r.ClassicGroupMetadataKey
        keys = dict.fromkeys((*self._values, group_key(self.group_id)))
        ordered = sorted(keys, key=lambda key: _TOMBSTONE_ORDER.index(type(key)))
        return tuple(Record(key, None) for key in ordered)

    def apply(self, record: Record) -> None:
        """Apply a record.

        The result depends only on the last value of each key, so compaction cannot change a replay.
        """
        key, value = record.key, record.value
        _put(self._values, key, value)
        match key:
            case r.OffsetCommitKey():
                # Most records are commits.
                assert value is None or isinstance(value, r.OffsetCommitValue)
                _put(self.offsets, (key.topic, key.partition), value)
            case r.ClassicGroupMetadataKey():
                assert value is None or isinstance(value, r.ClassicGroupMetadataValue)
                self.classic_metadata = value
            case r.DesignGroupKey():
                assert value is None or isinstance(value, r.DesignGenerationValue)
                self.design_generation = value
            case r.GroupMetadataKey():
                assert value is None or isinstance(value, r.GroupMetadataValue)
                self.metadata = value
                if value is None:
                    # Deleted or converted: a later consumer group of this id is another one.
                    self.instances.clear()
                    self.room = 0
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
        metadata = self._values.get(r.MemberMetadataKey(self.group_id, member_id))
        current = self._values.get(r.CurrentAssignmentKey(self.group_id, member_id))
        if not isinstance(metadata, r.MemberMetadataValue):
            removed = self.members.pop(member_id, None)
            if removed and removed.instance_id is not None:
                self.instances.pop(removed.instance_id, None)
            return
        if not isinstance(current, r.CurrentAssignmentValue):
            current = _NOT_RECONCILED
        self.room = max(self.room, len(self.members) + 1)
        self.members[member_id] = GroupMember(
            member_id=member_id,
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=current.state,
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(metadata.subscribed_topic_names),
            subscribed_topic_regex=metadata.subscribed_topic_regex,
            server_assignor=metadata.server_assignor,
            client_assignors=metadata.client_assignors,
            classic=metadata.classic,
            assigned=current.assigned,
            pending_revocation=current.pending_revocation,
        )
        if metadata.instance_id is not None:
            self.instances[metadata.instance_id] = member_id


def _put(values: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
