"""Which target a heartbeat's member is on its way to: a new one where one is due.

Source: KIP-848, "Assignment Epoch - Compute the group assignment"; KIP-1263;
GroupMetadataManager.maybeUpdateTargetAssignment.
"""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.assignors.assignor import AssignorError
from spark_groups.lab.coordinator import client_assignors, membership, target
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.lab.coordinator.subscribing import Change, GroupSubscription
from spark_groups.types import NO_PARTITIONS, Assignment
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Aim:
    """What a member is to be reconciled with.

    Args:
        assignment_epoch: The epoch of the target.
        target: What the member is meant to have.
        records: What it takes to get there.
    """

    assignment_epoch: int
    target: Assignment
    records: tuple[Record, ...] = ()


def aim(
    change: Change, subscribed: GroupSubscription, profile: Profile, around: Surroundings
) -> Aim:
    """Return the target of a member, computed anew if the group epoch is ahead of it.

    Args:
        change: What the request makes of the members.
        subscribed: What the group subscribes to, and its epoch, once the request counts.
        profile: Which coordinator it is.
        around: The topics, the settings and the time.

    Raises:
        RefusedError: UNKNOWN_SERVER_ERROR, if the assignor cannot assign.
    """
    group, told = change.group, change.told
    group_epoch = subscribed.group_epoch
    if group.assignment_epoch >= group_epoch or not _may_assign(change, profile, around):
        return Aim(group.assignment_epoch, last_target(group, told, profile))
    # Whether all subscribe alike is only looked at together with the topics: who joins without a
    # subscription while a target is due is taken for one of the others.
    if subscribed.is_compared:
        homogeneous = target.is_homogeneous(change.counted(), subscribed.regexes)
    else:
        homogeneous = target.is_homogeneous(group.members.values(), group.counted_regexes)
    try:
        computed = target.compute(
            group,
            change.members(),
            profile,
            around,
            group_epoch=group_epoch,
            assignor=target.preferred_assignor(group, change.counted(), around, told.member_id),
            asking=told.member_id,
            homogeneous=homogeneous,
        )
    except AssignorError as error:
        # Kafka logs the reason and tells the member nothing but the code.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None) from error
    mine = computed.by_member.get(told.member_id, NO_PARTITIONS)
    return Aim(group_epoch, mine, computed.records)


def last_target(group: ConsumerGroup, told: GroupMember, profile: Profile) -> Assignment:
    """Return what a member was last meant to have; a static one has that of its instance id."""
    member_id: str | None = told.member_id
    if told.instance_id is not None:
        member_id = membership.holder_id(group, told.instance_id, profile)
    value = group.targets.get(member_id) if member_id else None
    return value.partitions if value else NO_PARTITIONS


def _may_assign(change: Change, profile: Profile, around: Surroundings) -> bool:
    """Tell whether the assignor may run: not again within an interval, not where members do."""
    if profile.kip_heartbeats and client_assignors.chosen(change.members()):
        return False
    computed = change.group.target_metadata
    if not profile.batches_assignments or not computed or not computed.assignment_timestamp_s:
        return True
    interval_s = around.settings.assignment_interval_s(change.group.group_id)
    return not interval_s or around.now >= computed.assignment_timestamp_s + interval_s
