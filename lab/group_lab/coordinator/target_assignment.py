"""A new target assignment: the assignor, its input, and the records of its changes.

The result of an assignor depends on three orders: of the members (a HashMap that
TargetAssignmentBuilder fills from the group's TimelineHashMap), of the topics (a HashSet of ids,
filled from the HashSet of the names of the first member), and of a member's partitions
(`assignors.java_order`). A tie between server-side assignors depends on a fourth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from group_lab.assignors.assignor import AssignorError, GroupSpec, MemberSpec
from group_lab.assignors.java_order import (
    DEFAULT_TABLE,
    copied_table,
    grown_table,
    hash_order,
    signed,
    string_hash,
    uuid_hash,
)
from group_lab.assignors.registry import assignors
from group_lab.coordinator import member_checks
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import RequestContext
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.records import RegularExpressionValue, TargetMemberValue
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

_FIBONACCI: Final = -7046029254386353131
_LONG: Final = (1 << 64) - 1


def timeline_order(keys: Sequence[str], room: int) -> list[str]:
    """Return keys in the order of a TimelineHashMap: by slot, and within a slot the last one first.

    Args:
        keys: Unique, in the order of insertion.
        room: The number of keys that the table has grown for; it never shrinks. A put that replaces
            a value makes room for another key, too.
    """
    bits = 1
    while room * 3 > 4 << bits:
        bits += 1

    def slot(key: str) -> int:
        return (signed(string_hash(key)) * _FIBONACCI & _LONG) >> (64 - bits)

    last_first = list(keys)
    last_first.reverse()
    return sorted(last_first, key=slot)


def member_order(known: Sequence[str], members: Collection[str], room: int) -> list[str]:
    """Return member ids in the order of TargetAssignmentBuilder's `memberSpecs`.

    While one member replaces another, the table may hold both and grow.

    Args:
        known: The members before the request, in the order in which they joined.
        members: The members after it.
        room: The number of members that the group's table has grown for.
    """
    kept = set(known).intersection(members)
    added = [member for member in members if member not in kept]
    removed = [each for each in known if each not in kept]
    changes = hash_order([*added, *removed], string_hash, DEFAULT_TABLE)
    grows_first = bool(added) and changes[0] == added[0]
    put = [*(each for each in timeline_order(known, room) if each in kept), *added]
    return hash_order(put, string_hash, grown_table(max(len(put), len(known) + grows_first)))


def topic_order(names: Sequence[str], topics: TopicsImage) -> list[TopicId]:
    """Return the ids of existing topics in the order of a HashSet.

    Args:
        names: Topic names, in the coordinator's order.
    """
    found = [topics.by_name[name].topic_id for name in names if name in topics.by_name]
    return hash_order(found, uuid_hash, copied_table(len(names)))


def name_order(names: Iterable[str]) -> list[str]:
    """Return topic names in the order of a HashSet made from their sorted list."""
    listed = sorted(names)
    return hash_order(listed, string_hash, copied_table(len(listed)))


def vote_order(voted: Sequence[str], kept: Collection[str], added: Iterable[str]) -> list[str]:
    """Return assignor names in the order of `computePreferredServerAssignor`'s copy of the votes.

    `HashMap.compute` inserts at the front of a bucket.

    Args:
        voted: Assignors with votes before the request.
        kept: Those with votes without the sender.
        added: Those with only the vote of the sender.
    """
    copied = [each for each in timeline_order(voted, len(voted) + 1) if each in kept]
    table = 1 << (len(voted) * 4 // 3).bit_length() if voted else DEFAULT_TABLE
    return hash_order([*added, *copied], string_hash, table)


@dataclass(frozen=True, slots=True)
class Target:
    """A computed target assignment.

    Args:
        records: Changed targets in the order of the members, then the epoch.
    """

    assignor: str
    records: tuple[r.Record, ...]
    by_member: Mapping[str, Assignment]


def compute(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    profile: Profile,
    context: RequestContext,
    *,
    group_epoch: int,
    assignor: str,
    asking: str = "",
    homogeneous: bool,
) -> Target:
    """Compute the target of a group epoch (TargetAssignmentBuilder, `updateTargetAssignment`).

    A new static member takes over the target of its predecessor. Tombstones for the targets of
    former members are not included.

    Args:
        group: The group before the request.
        members: The members after it, by id.
        asking: The sender of the heartbeat, "" for none.
        homogeneous: Whether the coordinator counts all members as subscribing alike.

    Raises:
        AssignorError: The assignor is unknown or failed.
    """
    known = assignors(
        stable_extras=profile.stable_extras, range_is_sticky=profile.range_is_sticky
    ).get(assignor)
    if known is None or assignor not in context.settings.broker.assignors:
        raise AssignorError(f"the assignor {assignor} does not exist")
    specs, counts = _specs(group, members, profile, context, asking)
    targeted = frozenset(
        key for each in group.targets.values() for key in each.partitions.partitions
    )
    by_member = known.assign(GroupSpec(specs, homogeneous, counts, targeted))
    before: dict[str, TargetMemberValue | None] = {**group.targets}
    if profile.compares_taken_targets and asking in members:
        before[asking] = _target_of(group, members[asking], profile, asking)
    changed = [
        r.Record(r.TargetMemberKey(group.group_id, member_id), value)
        for member_id, target in by_member.items()
        if before.get(member_id) != (value := r.TargetMemberValue(target))
    ]
    computed_s = context.now if profile.batches_assignments else 0.0
    epoch = r.Record(
        r.TargetMetadataKey(group.group_id), r.TargetMetadataValue(group_epoch, computed_s)
    )
    return Target(assignor, (*changed, epoch), by_member)


def preferred_assignor(
    group: ConsumerGroup,
    counted: Sequence[GroupMember],
    context: RequestContext,
    asking: str = "",
) -> str:
    """Return the assignor with most votes, or else the first in the configuration.

    Args:
        counted: The members after the request; the sender is the last.
        asking: The sender of the heartbeat, "" for none.
    """
    votes = _votes(counted)
    if len(votes) <= 1:
        return next(iter(votes), context.settings.broker.assignors[0])
    kept = _votes(counted[:-1] if asking else counted)
    added = [vote for vote in votes if vote not in kept]
    voted = list(_votes(group.members.values()))
    return max(vote_order(voted, kept, added), key=votes.__getitem__)


def described_assignor(group: ConsumerGroup, context: RequestContext) -> str:
    """Return the assignor that Describe shows; ties may resolve differently."""
    votes = _votes(group.members.values())
    ordered = timeline_order(list(votes), len(votes) + 1)
    return max(ordered, key=votes.__getitem__, default=context.settings.broker.assignors[0])


def is_contested(group: ConsumerGroup) -> bool:
    """Return whether members ask for more than one assignor."""
    return len({member.server_assignor for member in group.members.values()} - {None}) > 1


def is_homogeneous(
    members: Collection[GroupMember], regexes: Mapping[str, RegularExpressionValue]
) -> bool:
    """Return whether all members subscribe to the same names, or all to one pattern and no name.

    Args:
        members: The members as the coordinator counts them.
        regexes: Resolved patterns; those without members also count, and a topic of two patterns
            counts twice.
    """
    patterns = Counter(regex for member in members if (regex := member.subscribed_topic_regex))
    names = Counter(name for member in members for name in member.subscribed_topic_names)
    matched = [topic for each in regexes.values() for topic in each.topics]
    if not patterns:
        return names.keys() >= set(matched) and all(
            count == len(members) for count in names.values()
        )
    return (
        not names
        and list(patterns.values()) == [len(members)]
        and len(matched) == len(set(matched))
    )


def _votes(members: Iterable[GroupMember]) -> Counter[str]:
    return Counter(
        member.server_assignor for member in members if member.server_assignor is not None
    )


def _specs(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    profile: Profile,
    context: RequestContext,
    asking: str,
) -> tuple[dict[str, MemberSpec], dict[TopicId, int]]:
    ids: dict[tuple[frozenset[str], str], list[TopicId]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in member_order(list(group.members), members, group.room):
        member = members[member_id]
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscription not in ids:
            ids[subscription] = topic_order(_names(group, *subscription), context.topics)
        target = _target_of(group, member, profile, asking)
        specs[member_id] = MemberSpec(
            subscribed=frozenset(ids[subscription]),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            target=target.partitions if target else NO_PARTITIONS,
        )
    by_id = {each.topic_id: each for each in context.topics.by_name.values()}
    counts = {each: by_id[each].partition_count for listed in ids.values() for each in listed}
    return specs, counts


def _names(group: ConsumerGroup, names: frozenset[str], regex: str) -> list[str]:
    """Return the topics of a subscription, in the order of the coordinator (UnionSet)."""
    by_name = name_order(names)
    resolved = group.regexes.get(regex)
    by_regex = name_order(resolved.topics) if resolved else []
    first, second = (by_name, by_regex) if len(by_name) > len(by_regex) else (by_regex, by_name)
    return list(dict.fromkeys((*first, *second)))


def _target_of(
    group: ConsumerGroup, member: GroupMember, profile: Profile, asking: str
) -> TargetMemberValue | None:
    """Return the target of a member, or of the member that it replaces."""
    own = group.targets.get(member.member_id)
    if member.member_id != asking or member.instance_id is None:
        return own
    holder_id = member_checks.holder_id(group, member.instance_id, profile)
    if holder_id is None or holder_id == member.member_id:
        return own
    return group.targets.get(holder_id) or (own if profile.compares_taken_targets else None)
