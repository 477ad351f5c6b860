"""How long a member may be silent, and how long it may take to revoke.

Source: GroupMetadataManager.scheduleConsumerGroupSessionTimeout,
scheduleConsumerGroupRebalanceTimeout and onLoaded; KIP-848, "Heartbeat & Session" and "Fail Over".
"""

from __future__ import annotations

from spark_groups.lab.coordinator import leaving
from spark_groups.lab.coordinator.effects import Outcome, Surroundings, Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember, ReconciliationState
from spark_groups.lab.coordinator.profile import Profile


def session_timer(group_id: str, member_id: str, around: Surroundings) -> Timer:
    """Return the timer that removes a member unless it heartbeats before."""
    return Timer(
        TimerKey(TimerKind.SESSION, group_id, member_id),
        around.now + around.settings.session_timeout_s(group_id),
    )


def rebalance_timer(group_id: str, member: GroupMember, around: Surroundings) -> Timer:
    """Return the timer of a member's revocation; it stops the timer if there is none."""
    key = TimerKey(TimerKind.REBALANCE, group_id, member.member_id)
    if member.state is not ReconciliationState.UNREVOKED_PARTITIONS:
        return Timer(key, None)
    return Timer(key, around.now + member.rebalance_timeout_ms / 1000, member.member_epoch)


def fired(
    group: ConsumerGroup, timer: Timer, profile: Profile, around: Surroundings
) -> Outcome[None]:
    """Remove the member whose session is over, or that did not revoke in time.

    Args:
        group: The group.
        timer: A session's or a rebalance's; the member may be gone already.
        profile: Which coordinator it is.
        around: The topics.
    """
    member = group.members.get(timer.key.member_id)
    if member is None:
        return Outcome(None)
    revokes = timer.key.kind is TimerKind.REBALANCE
    if revokes and member.member_epoch != timer.member_epoch:
        return Outcome(None)
    return leaving.fence(group, (member,), profile, around)


def loaded(group: ConsumerGroup, _profile: Profile, around: Surroundings) -> Outcome[None]:
    """Give every member of a group that was just loaded a whole session, and time to revoke.

    Args:
        group: The group.
        around: The time and the settings.
    """
    timers = []
    for member in group.members.values():
        timers.append(session_timer(group.group_id, member.member_id, around))
        if member.state is ReconciliationState.UNREVOKED_PARTITIONS:
            timers.append(rebalance_timer(group.group_id, member, around))
    return Outcome(None, timers=tuple(timers))
