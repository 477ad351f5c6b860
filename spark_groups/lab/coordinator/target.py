"""A new target assignment: which assignor, what it is given, and the records of what it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec, MemberSpec
from spark_groups.lab.assignors.registry import assignors
from spark_groups.lab.coordinator import membership
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.iteration_order import (
    member_order,
    name_order,
    timeline_order,
    topic_order,
    vote_order,
)
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import RegularExpressionValue, TargetMemberValue
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId


@dataclass(frozen=True, slots=True)
class Target:
    """A target assignment that was computed.

    Args:
        assignor: Who computed it.
        records: What changes: targets that differ, in the order of the members, then the epoch.
        by_member: The target of every member.
    """

    assignor: str
    records: tuple[r.Record, ...]
    by_member: Mapping[str, Assignment]


def compute(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    profile: Profile,
    around: Surroundings,
    *,
    group_epoch: int,
    assignor: str,
    asking: str = "",
    homogeneous: bool,
) -> Target:
    """Compute the target of a group epoch (TargetAssignmentBuilder, `updateTargetAssignment`).

    A static member that is new takes over the target of the one it replaces; the targets of those
    that left go with them and are no records of this.

    Args:
        group: The group before the request.
        members: The members after it, by id.
        profile: Which coordinator this is.
        around: The topics, the settings and the time.
        group_epoch: The epoch the target is for.
        assignor: Who computes it.
        asking: The member whose heartbeat it is; "" for nobody's.
        homogeneous: Whether all subscribe alike, as far as the coordinator knows.

    Raises:
        AssignorError: The assignor is not known or could not assign.
    """
    known = assignors(
        stable_extras=profile.stable_extras, range_is_sticky=profile.range_is_sticky
    ).get(assignor)
    if known is None or assignor not in around.settings.broker.assignors:
        raise AssignorError(f"the assignor {assignor} does not exist")
    specs, counts = _specs(group, members, profile, around, asking)
    meant = frozenset(key for each in group.targets.values() for key in each.partitions.partitions)
    by_member = known.assign(GroupSpec(specs, homogeneous, counts, meant))
    before: dict[str, TargetMemberValue | None] = {**group.targets}
    if profile.compares_taken_targets and asking in members:
        before[asking] = _target_of(group, members[asking], profile, asking)
    changed = [
        r.Record(r.TargetMemberKey(group.group_id, member_id), value)
        for member_id, target in by_member.items()
        if before.get(member_id) != (value := r.TargetMemberValue(target))
    ]
    computed_s = around.now if profile.batches_assignments else 0.0
    epoch = r.Record(
        r.TargetMetadataKey(group.group_id), r.TargetMetadataValue(group_epoch, computed_s)
    )
    return Target(assignor, (*changed, epoch), by_member)


def preferred_assignor(
    group: ConsumerGroup,
    counted: Sequence[GroupMember],
    around: Surroundings,
    asking: str = "",
) -> str:
    """Return the assignor that most members ask for, else the first that is configured.

    Args:
        group: The group before the request.
        counted: The members after it; the one that asks is the last.
        around: The settings.
        asking: The member whose heartbeat it is; "" for nobody's.
    """
    votes = _votes(counted)
    if len(votes) <= 1:
        return next(iter(votes), around.settings.broker.assignors[0])
    kept = _votes(counted[:-1] if asking else counted)
    added = [each for each in votes if each not in kept]
    voted = list(_votes(group.members.values()))
    return max(vote_order(voted, kept, added), key=votes.__getitem__)


def described_assignor(group: ConsumerGroup, around: Surroundings) -> str:
    """Return the assignor that Describe names; of two with as many votes not always the same."""
    votes = _votes(group.members.values())
    ordered = timeline_order(list(votes))
    return max(ordered, key=votes.__getitem__, default=around.settings.broker.assignors[0])


def is_contested(group: ConsumerGroup) -> bool:
    """Tell whether members ask for more than one assignor."""
    return len({each.server_assignor for each in group.members.values()} - {None}) > 1


def is_homogeneous(
    members: Collection[GroupMember], regexes: Mapping[str, RegularExpressionValue]
) -> bool:
    """Tell whether all members subscribe to the same names, or all to one pattern and no name.

    Args:
        members: The members as the coordinator counts them.
        regexes: What patterns are resolved to; a topic that two of them match is had by two, and
            one that nobody has any more still counts.
    """
    patterns = Counter(regex for each in members if (regex := each.subscribed_topic_regex))
    names = Counter(name for each in members for name in each.subscribed_topic_names)
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
    return Counter(each.server_assignor for each in members if each.server_assignor is not None)


def _specs(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    profile: Profile,
    around: Surroundings,
    asking: str,
) -> tuple[dict[str, MemberSpec], dict[TopicId, int]]:
    ids: dict[tuple[frozenset[str], str], list[TopicId]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in member_order(list(group.members), members, group.most_members):
        member = members[member_id]
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscription not in ids:
            ids[subscription] = topic_order(_names(group, *subscription), around.topics)
        target = _target_of(group, member, profile, asking)
        specs[member_id] = MemberSpec(
            subscribed=frozenset(ids[subscription]),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            target=target.partitions if target else NO_PARTITIONS,
        )
    by_id = {each.topic_id: each for each in around.topics.by_name.values()}
    counts = {each: by_id[each].partition_count for listed in ids.values() for each in listed}
    return specs, counts


def _names(group: ConsumerGroup, names: frozenset[str], regex: str) -> list[str]:
    """Return what a subscription covers, in the coordinator's order (UnionSet)."""
    by_name = name_order(names)
    resolved = group.regexes.get(regex)
    by_regex = name_order(resolved.topics) if resolved else []
    first, second = (by_name, by_regex) if len(by_name) > len(by_regex) else (by_regex, by_name)
    return list(dict.fromkeys((*first, *second)))


def _target_of(
    group: ConsumerGroup, member: GroupMember, profile: Profile, asking: str
) -> TargetMemberValue | None:
    """Return what a member was meant to have, or, if it takes a place, what was meant for that."""
    own = group.targets.get(member.member_id)
    if member.member_id != asking or member.instance_id is None:
        return own
    holder_id = membership.holder_id(group, member.instance_id, profile)
    if holder_id is None or holder_id == member.member_id:
        return own
    return group.targets.get(holder_id) or (own if profile.compares_taken_targets else None)
