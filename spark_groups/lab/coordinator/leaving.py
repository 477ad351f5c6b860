"""Members that go: they say goodbye, or are fenced.

Source: GroupMetadataManager.consumerGroupLeave and consumerGroupFenceMembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_groups.lab.coordinator import group_epoch, member_records, membership
from spark_groups.lab.coordinator.effects import Outcome, Surroundings, Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import (
    Record,
    RegularExpressionKey,
    TargetMetadataKey,
    TargetMetadataValue,
)
from spark_groups.protocol.messages import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)


def leave(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, around: Surroundings
) -> Outcome[HeartbeatResponse]:
    """Take a member out that says goodbye, for good or, if it is static, for a while.

    The session timer of a static member goes on: it has what is left of it to come back.

    Args:
        group: The group.
        request: A heartbeat with epoch -1 or -2.
        profile: Which coordinator it is.
        around: The topics.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    membership.check_exists(group, f"Group {group.group_id} not found.")
    member = membership.leaver(group, request.member_id, request.instance_id, profile)
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        away = replace(
            member,
            member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            # Who comes back in its place counts as having had them from the beginning.
            assigned=dict.fromkeys(member.assigned, 0),
            pending_revocation={},
        )
        return Outcome(response, (member_records.current(group.group_id, away),))
    fenced = fence(group, (member,), profile, around)
    return Outcome(response, fenced.records, fenced.timers)


def fence(
    group: ConsumerGroup,
    members: Sequence[GroupMember],
    profile: Profile,
    around: Surroundings,
) -> Outcome[None]:
    """Take members out of a group: its epoch grows, and the next heartbeat computes a target.

    Args:
        group: The group.
        members: Those that go, each once.
        profile: Which coordinator it is.
        around: The topics.
    """
    if not members:
        return Outcome(None)
    group_id = group.group_id
    gone = {each.member_id for each in members}
    remaining = [each for each in group.members.values() if each.member_id not in gone]
    patterns = {each.subscribed_topic_regex for each in members} - {""}
    patterns -= {each.subscribed_topic_regex for each in remaining}
    regexes = {key: each for key, each in group.regexes.items() if key not in patterns}
    epoch = group_epoch.compared(group, remaining, profile, around, bumps=True, regexes=regexes)
    records = [
        *(each for member in members for each in member_records.gone(group_id, member.member_id)),
        *(Record(RegularExpressionKey(group_id, each), None) for each in sorted(patterns)),
        *epoch.records,
    ]
    if profile.last_leave_installs_target and not remaining:
        # Without a time: who joins next does not wait for an interval to pass.
        installed = TargetMetadataValue(epoch.group_epoch)
        records.append(Record(TargetMetadataKey(group_id), installed))
    timers = [
        Timer(TimerKey(kind, group_id, each.member_id), None)
        for each in members
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE)
    ]
    return Outcome(None, tuple(records), (*timers, *epoch.timers))
