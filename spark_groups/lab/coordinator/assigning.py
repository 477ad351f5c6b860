"""What a coordinator does for a group by itself, without a heartbeat, under the KIP.

KIP-848 has the coordinator notice that topics changed, and compute a target whenever the group
epoch is ahead of it ("Assignment Epoch - Compute the group assignment", "Fail Over"). Kafka leaves
both to the next heartbeat of any member.
"""

from __future__ import annotations

from spark_groups.lab.assignors.assignor import AssignorError
from spark_groups.lab.coordinator import group_epoch, patterns, target
from spark_groups.lab.coordinator.client_assignors import chosen
from spark_groups.lab.coordinator.effects import Outcome, Surroundings, Timer
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.profile import Profile


def fired(
    group: ConsumerGroup, _timer: Timer, profile: Profile, around: Surroundings
) -> Outcome[None]:
    """Compute the target of a group whose epoch is ahead of it.

    Args:
        group: The group.
        profile: Which coordinator it is.
        around: The topics and the settings.
    """
    epoch, members = group.group_epoch, tuple(group.members.values())
    if not group.members or group.assignment_epoch >= epoch or chosen(group.members):
        return Outcome(None)
    try:
        computed = target.compute(
            group,
            group.members,
            profile,
            around,
            group_epoch=epoch,
            assignor=target.preferred_assignor(group, members, around),
            homogeneous=target.is_homogeneous(members, group.regexes),
        )
    except AssignorError:
        # The next heartbeat tries again, and is told.
        return Outcome(None)
    return Outcome(None, computed.records)


def topics_changed(group: ConsumerGroup, profile: Profile, around: Surroundings) -> Outcome[None]:
    """Compare a group with the topics there are, its patterns too.

    Args:
        group: The group.
        profile: Which coordinator it is.
        around: The topics.
    """
    return patterns.look_up(group, profile, around) if profile.assigns_by_itself else Outcome(None)


def loaded(group: ConsumerGroup, profile: Profile, around: Surroundings) -> Outcome[None]:
    """Check what may have changed while nobody looked after a group (KIP-848, "Fail Over").

    Args:
        group: A group that was just loaded.
        profile: Which coordinator it is.
        around: The topics.
    """
    changed = topics_changed(group, profile, around)
    timers = changed.timers or group_epoch.due(group.group_id, profile, around)
    return Outcome(None, changed.records, timers, changed.topics_version)
