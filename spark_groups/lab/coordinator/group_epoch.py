"""The epoch of a group: it grows when what the assignor would be given has changed.

Source: KIP-848, "Group Epoch - Trigger a rebalance"; GroupMetadataManager's
updateSubscriptionMetadata and consumerGroupFenceMembers; KIP-1101 for the hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b

from spark_groups.lab.coordinator.effects import Surroundings, Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    PartitionMetadataKey,
    PartitionMetadataValue,
    Record,
    RegularExpressionValue,
)
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """A group's epoch, and the records that it takes to get there.

    Args:
        group_epoch: The epoch.
        records: Empty if nothing changed.
        timers: The target of another epoch, where that does not wait for a heartbeat.
    """

    group_epoch: int
    records: tuple[Record, ...] = ()
    timers: tuple[Timer, ...] = ()


def subscribed_names(
    members: Iterable[GroupMember], regexes: Mapping[str, RegularExpressionValue]
) -> frozenset[str]:
    """Return the names of all topics that a group subscribes to.

    Args:
        members: Its members.
        regexes: What its patterns are resolved to. One that nobody has any more still counts: a
            member that took another one's place may have left it behind.
    """
    by_name = (each.subscribed_topic_names for each in members)
    return frozenset().union(*by_name, *(each.topics for each in regexes.values()))


def names_of(member: GroupMember, regexes: Mapping[str, RegularExpressionValue]) -> frozenset[str]:
    """Return the names of all topics that a member subscribes to, by name and by pattern."""
    resolved = regexes.get(member.subscribed_topic_regex)
    return member.subscribed_topic_names.union(resolved.topics if resolved else ())


def is_touched(group: ConsumerGroup, before: TopicsImage, after: TopicsImage) -> bool:
    """Tell whether a topic that a group subscribes to has come, gone, or changed."""
    names = subscribed_names(group.members.values(), group.regexes)
    return any(before.by_name.get(each) != after.by_name.get(each) for each in names)


def compared(
    group: ConsumerGroup,
    members: Iterable[GroupMember],
    profile: Profile,
    around: Surroundings,
    *,
    bumps: bool,
    regexes: Mapping[str, RegularExpressionValue] | None = None,
) -> GroupEpoch:
    """Compare what a group subscribes to with the topics there are; a difference is a new epoch.

    Args:
        group: The group.
        members: Its members as they are going to be.
        profile: Which coordinator it is.
        around: The topics.
        bumps: Whether the epoch grows anyway.
        regexes: What patterns are resolved to; None: what the group has.
    """
    names = subscribed_names(members, group.regexes if regexes is None else regexes)
    compare = _hashed if profile.hashes_metadata else _listed
    found = compare(group, names, around, bumps=bumps)
    if found.group_epoch == group.group_epoch:
        return found
    return replace(found, timers=due(group.group_id, profile, around))


def due(group_id: str, profile: Profile, around: Surroundings) -> tuple[Timer, ...]:
    """Return the timer of a target that is computed at once; none where a heartbeat does it.

    Args:
        group_id: A group whose epoch is ahead of its target.
        profile: Which coordinator it is.
        around: The time.
    """
    if not profile.assigns_by_itself:
        return ()
    return (Timer(TimerKey(TimerKind.ASSIGNMENT, group_id), around.now),)


def _listed(
    group: ConsumerGroup,
    names: frozenset[str],
    around: Surroundings,
    *,
    bumps: bool,
) -> GroupEpoch:
    now = _described(names, around.topics)
    records = []
    if now != (group.partition_metadata or PartitionMetadataValue({})):
        records.append(Record(PartitionMetadataKey(group.group_id), now))
    group_epoch = group.group_epoch
    if bumps or records:
        group_epoch += 1
        records.append(_record(group, group_epoch))
    return GroupEpoch(group_epoch, tuple(records))


def _hashed(
    group: ConsumerGroup,
    names: frozenset[str],
    around: Surroundings,
    *,
    bumps: bool,
) -> GroupEpoch:
    metadata_hash = _hash_of(names, around.topics)
    before = group.metadata.metadata_hash if group.metadata else 0
    records = []
    group_epoch = group.group_epoch
    if bumps or metadata_hash != before:
        group_epoch += 1
        records.append(_record(group, group_epoch, metadata_hash))
    if group.partition_metadata is not None:
        # What 4.0 wrote is taken away once the hash is there.
        records.append(Record(PartitionMetadataKey(group.group_id), None))
    return GroupEpoch(group_epoch, tuple(records))


def _record(group: ConsumerGroup, group_epoch: int, metadata_hash: int = 0) -> Record:
    return Record(GroupMetadataKey(group.group_id), GroupMetadataValue(group_epoch, metadata_hash))


def _described(names: frozenset[str], topics: TopicsImage) -> PartitionMetadataValue:
    found = (topics.by_name[each] for each in sorted(names) if each in topics.by_name)
    return PartitionMetadataValue(
        {each.name: (each.topic_id, each.partition_count) for each in found}
    )


def _hash_of(names: frozenset[str], topics: TopicsImage) -> int:
    """Return 64 bits that are the same for the same topics; 0 for none.

    Kafka takes XXH3; which function it is shows nowhere.
    """
    found = [topics.by_name[each] for each in sorted(names) if each in topics.by_name]
    if not found:
        return 0
    text = repr(
        [
            (each.topic_id, each.name, each.partition_count, [sorted(rack) for rack in each.racks])
            for each in found
        ]
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
