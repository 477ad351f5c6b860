"""What a coordinator does for a group by itself, without a heartbeat, under the KIP.

KIP-848 has the coordinator notice that topics changed, and compute a target whenever the group
epoch is ahead of it ("Assignment Epoch - Compute the group assignment", "Fail Over"). Kafka leaves
both to the next heartbeat of any member.
"""

from __future__ import annotations

from spark_groups.lab.assignors.assignor import AssignorError
from spark_groups.lab.coordinator import subscriptions, target_assignment
from spark_groups.lab.coordinator.client_assignment import chosen
from spark_groups.lab.coordinator.effects import Outcome, RequestContext, Timer
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.profile import Profile


def fired(
    group: ConsumerGroup, _timer: Timer, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Compute the target of a group whose epoch is ahead of it.

    Args:
        group: The group.
        profile: Which coordinator it is.
        context: The topics and the settings.
    """
    epoch, members = group.group_epoch, tuple(group.members.values())
    if not group.members or group.assignment_epoch >= epoch or chosen(group.members):
        return Outcome(None)
    try:
        computed = target_assignment.compute(
            group,
            group.members,
            profile,
            context,
            group_epoch=epoch,
            assignor=target_assignment.preferred_assignor(group, members, context),
            homogeneous=target_assignment.is_homogeneous(members, group.regexes),
        )
    except AssignorError:
        # The next heartbeat tries again, and is told.
        return Outcome(None)
    return Outcome(None, computed.records)


def topics_changed(
    group: ConsumerGroup, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Compare a group with the topics there are, its patterns too.

    Args:
        group: The group.
        profile: Which coordinator it is.
        context: The topics.
    """
    return (
        subscriptions.look_up_patterns(group, profile, context)
        if profile.assigns_by_itself
        else Outcome(None)
    )


def loaded(group: ConsumerGroup, profile: Profile, context: RequestContext) -> Outcome[None]:
    """Check what may have changed while nobody looked after a group (KIP-848, "Fail Over").

    Args:
        group: A group that was just loaded.
        profile: Which coordinator it is.
        context: The topics.
    """
    changed = topics_changed(group, profile, context)
    timers = changed.timers or subscriptions.target_timers(group.group_id, profile, context)
    return Outcome(None, changed.records, timers, changed.topics_version)
