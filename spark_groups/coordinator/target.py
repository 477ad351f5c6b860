"""A new target assignment: which assignor, what it is given, and the records of what it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_groups.assignors.assignor import AssignorError, GroupSpec, MemberSpec
from spark_groups.assignors.registry import assignors
from spark_groups.coordinator import records as r
from spark_groups.coordinator.effects import Surroundings
from spark_groups.coordinator.group import ConsumerGroup
from spark_groups.coordinator.iteration_order import (
    member_order,
    name_order,
    timeline_order,
    topic_order,
    vote_order,
)
from spark_groups.coordinator.member import GroupMember
from spark_groups.coordinator.profile import Profile
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
    group_epoch: int,
    profile: Profile,
    around: Surroundings,
    *,
    asking: str = "",
    homogeneous: bool | None = None,
) -> Target:
    """Compute the target of a group epoch (TargetAssignmentBuilder, `updateTargetAssignment`).

    A static member that is new takes over the target of the one it replaces; the targets of those
    that left go with them and are no records of this.

    Args:
        group: The group before the request.
        members: The members after it, by id.
        group_epoch: The epoch the target is for.
        profile: Which coordinator this is.
        around: The topics, the settings and the time.
        asking: The member whose heartbeat it is: it decides between assignors with one vote each.
        homogeneous: Whether all subscribe alike, as far as the coordinator knows; None: as they do.

    Raises:
        AssignorError: The assignor is not known or could not assign.
    """
    name = preferred_assignor(group, members, around, asking)
    known = assignors(
        stable_extras=profile.stable_extras, range_is_sticky=profile.range_is_sticky
    ).get(name)
    if known is None or name not in around.settings.broker.assignors:
        raise AssignorError(f"the assignor {name} does not exist")
    spec = _spec(group, members, around)
    if homogeneous is not None:
        spec = replace(spec, is_homogeneous=homogeneous)
    by_member = known.assign(spec)
    changed = [
        r.Record(r.TargetMemberKey(group.group_id, member_id), value)
        for member_id, target in by_member.items()
        if group.targets.get(member_id) != (value := r.TargetMemberValue(target))
    ]
    computed_s = around.now if profile.batches_assignments else 0.0
    epoch = r.Record(
        r.TargetMetadataKey(group.group_id), r.TargetMetadataValue(group_epoch, computed_s)
    )
    return Target(name, (*changed, epoch), by_member)


def preferred_assignor(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    around: Surroundings,
    asking: str = "",
) -> str:
    """Return the assignor that most members ask for, else the first that is configured.

    Args:
        group: The group before the request.
        members: The members after it, by id.
        around: The settings.
        asking: The member whose heartbeat it is; "" for nobody's.
    """
    votes = _votes(members)
    if len(votes) <= 1:
        return next(iter(votes), around.settings.broker.assignors[0])
    others = {
        member_id: member
        for member_id, member in group.members.items()
        if member_id != asking and member_id in members
    }
    kept = _votes(others)
    added = [each for each in votes if each not in kept]
    return max(vote_order(list(_votes(group.members)), kept, added), key=votes.__getitem__)


def described_assignor(group: ConsumerGroup, around: Surroundings) -> str:
    """Return the assignor that Describe names; of two with as many votes not always the same."""
    votes = _votes(group.members)
    ordered = timeline_order(list(votes))
    return max(ordered, key=votes.__getitem__, default=around.settings.broker.assignors[0])


def is_contested(group: ConsumerGroup) -> bool:
    """Tell whether members ask for more than one assignor."""
    return len({each.server_assignor for each in group.members.values()} - {None}) > 1


def is_homogeneous(members: Mapping[str, GroupMember]) -> bool:
    """Tell whether all members subscribe to the same names, or all to one pattern and no name."""
    regexes = {each.subscribed_topic_regex for each in members.values()}
    names = {each.subscribed_topic_names for each in members.values()}
    if len(regexes) > 1:
        return False
    return len(names) <= 1 and ("" in regexes or not any(names))


def _votes(members: Mapping[str, GroupMember]) -> Counter[str]:
    return Counter(
        each.server_assignor for each in members.values() if each.server_assignor is not None
    )


def _spec(
    group: ConsumerGroup, members: Mapping[str, GroupMember], around: Surroundings
) -> GroupSpec:
    ids: dict[tuple[frozenset[str], str], list[TopicId]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in member_order(list(group.members), members):
        member = members[member_id]
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscription not in ids:
            ids[subscription] = topic_order(_names(group, *subscription), around.topics)
        specs[member_id] = MemberSpec(
            subscribed=frozenset(ids[subscription]),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            target=_target_of(group, member),
        )
    by_id = {each.topic_id: each for each in around.topics.by_name.values()}
    counts = {each: by_id[each].partition_count for listed in ids.values() for each in listed}
    return GroupSpec(specs, is_homogeneous(members), counts)


def _names(group: ConsumerGroup, names: frozenset[str], regex: str) -> list[str]:
    """Return what a subscription covers, in the coordinator's order (UnionSet)."""
    by_name = name_order(names)
    resolved = group.regexes.get(regex)
    by_regex = name_order(resolved.topics) if resolved else []
    first, second = (by_name, by_regex) if len(by_name) > len(by_regex) else (by_regex, by_name)
    return list(dict.fromkeys((*first, *second)))


def _target_of(group: ConsumerGroup, member: GroupMember) -> Assignment:
    found = group.targets.get(member.member_id)
    if member.instance_id is not None:
        # Who takes a place gets what was meant for it, whatever its own target was.
        replaced = group.static_member(member.instance_id)
        found = group.targets.get(replaced.member_id) if replaced else found
    return found.partitions if found else NO_PARTITIONS
