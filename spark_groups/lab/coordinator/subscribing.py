"""What a heartbeat makes of its group's subscriptions: other topics are a new group epoch.

Source: KIP-848, "Group Epoch - Trigger a rebalance"; the first half of
GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_groups.lab.coordinator import group_epoch, patterns, target
from spark_groups.lab.coordinator.effects import Surroundings, Timer
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.membership import Sender
from spark_groups.lab.coordinator.profile import AssignorBump, Profile
from spark_groups.lab.coordinator.records import Record, RegularExpressionValue
from spark_groups.types import TopicId
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """What a request makes of its group's members.

    Args:
        group: The group as it is.
        sender: The member as it was.
        told: The member with what the request says of it.
    """

    group: ConsumerGroup
    sender: Sender
    told: GroupMember

    def members(self) -> dict[str, GroupMember]:
        """Return the members of the group once the request counts."""
        kept = self.group.members.items()
        members = {key: each for key, each in kept if key != self.sender.predecessor}
        members[self.told.member_id] = self.told
        return members

    def counted(self) -> list[GroupMember]:
        """Return the members as the coordinator counts them once the request counts.

        The sender is the last one. Who takes the place of another member and is one already counts
        twice, as what it was and as what it is (ConsumerGroup.computeSubscribedTopicNames).
        """
        before = self.sender.predecessor or self.told.member_id
        kept = [each for each in self.group.members.values() if each.member_id != before]
        return [*kept, self.told]

    def subscribed_ids(self, around: Surroundings) -> frozenset[TopicId]:
        """Return the topics the member subscribes to; a pattern counts once it is looked up."""
        names = group_epoch.names_of(self.told, self.group.regexes)
        found = (around.topics.by_name.get(each) for each in names)
        return frozenset(each.topic_id for each in found if each)


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """What a group subscribes to once the request counts.

    Args:
        group_epoch: The group's epoch for it.
        has_changed: Whether the member subscribes to something else than before.
        regexes: What the group's patterns are resolved to.
        records: What it takes to get there.
        timers: The lookup of patterns, if one is due.
        topics_version: The version of the topics it was compared with; None if it was not.
    """

    group_epoch: int
    has_changed: bool
    regexes: Mapping[str, RegularExpressionValue]
    records: tuple[Record, ...] = ()
    timers: tuple[Timer, ...] = ()
    topics_version: int | None = None

    @property
    def is_compared(self) -> bool:
        return self.topics_version is not None


def subscription(change: Change, profile: Profile, around: Surroundings) -> GroupSubscription:
    """Return what a group subscribes to, with a new epoch if that is not what it was.

    Args:
        change: What the request makes of the members.
        profile: Which coordinator it is.
        around: The topics and the time.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION.
    """
    group, before, told = change.group, change.sender.member, change.told
    pattern = patterns.change(group, before, told, profile, around)
    has_changed = (
        told.subscribed_topic_names != before.subscribed_topic_names
        or pattern.updated is not patterns.Updated.NO_CHANGE
    )
    epoch = group.group_epoch
    bumps = (
        epoch == 0
        or (told is not before and _needs_target(change, pattern.updated, profile))
        or _changes_assignor(change, profile, around)
    )
    if not bumps and group.topics_version == around.topics.version:
        return GroupSubscription(epoch, has_changed, group.regexes, pattern.records, pattern.timers)
    regexes = {key: each for key, each in group.regexes.items() if key != pattern.given_up}
    compared = group_epoch.compared(
        group, change.counted(), profile, around, bumps=bumps, regexes=regexes
    )
    return GroupSubscription(
        compared.group_epoch,
        has_changed,
        regexes,
        (*pattern.records, *compared.records),
        pattern.timers,
        around.topics.version,
    )


def _needs_target(change: Change, pattern: patterns.Updated, profile: Profile) -> bool:
    """Tell whether what changed of the member is something the assignor looks at.

    A pattern that is not looked up yet waits for that, so that there is one rebalance and not two.
    """
    before, told = change.sender.member, change.told
    is_resolved = pattern is patterns.Updated.RESOLVED and (
        told.subscribed_topic_regex != "" or profile.given_up_pattern_bumps
    )
    return (
        told.subscribed_topic_names != before.subscribed_topic_names
        or is_resolved
        or told.client_assignors != before.client_assignors
        or (
            profile.every_join_bumps
            and before.member_id not in change.group.members
            and change.sender.predecessor is None
        )
    )


def _changes_assignor(change: Change, profile: Profile, around: Surroundings) -> bool:
    group, told = change.group, change.told
    bump = profile.assignor_bump
    if bump is AssignorBump.NEVER:
        return False
    changes_vote = told.server_assignor != change.sender.member.server_assignor
    may_tie = bump is AssignorBump.EVERY_HEARTBEAT and target.is_contested(group)
    if not (changes_vote or may_tie):
        return False
    # Of two with as many votes Kafka names one here and may name the other one there.
    after = target.preferred_assignor(group, change.counted(), around, told.member_id)
    return after != target.described_assignor(group, around)
