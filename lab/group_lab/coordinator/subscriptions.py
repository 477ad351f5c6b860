"""The subscriptions of a group, by name and by pattern, and when they bump the group epoch.

The epoch grows when the input of the assignor changes. A heartbeat only requests the resolution of
its pattern: all patterns of a group are resolved together, outside the event loop, so that they
cause one rebalance; the result is a separate write.

Source: KIP-848, "Group Epoch - Trigger a rebalance" and "Regex Based Subscription"; KIP-1101 for
the hash; the first half of GroupMetadataManager.consumerGroupHeartbeat, with
updateSubscriptionMetadata, consumerGroupFenceMembers, maybeUpdateRegularExpressions;
TopicRegexResolver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from hashlib import blake2b
from typing import Final

from group_lab.coordinator import records as r
from group_lab.coordinator import target_assignment
from group_lab.coordinator.effects import (
    Outcome,
    RefusedError,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.member_checks import Sender
from group_lab.coordinator.profile import AssignorBump, Profile
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.subscription import Subscription, re2_fault
from spark_groups.types import TopicId
from spark_groups.values import dataclass

BATCH_REFRESH_MIN_INTERVAL_S: Final = 10.0
"""Minimum time between two resolutions."""

_AS_RE2J: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Error messages of RE2, and those of RE2/J in Kafka."""


class Updated(Enum):
    """The effect of a heartbeat on its member's pattern."""

    NO_CHANGE = "unchanged"
    UNRESOLVED = "changed: the group epoch grows once it is resolved"
    RESOLVED = "changed to a resolved pattern or none: the group epoch grows"


@dataclass(frozen=True, slots=True)
class PatternChange:
    """The effect of a heartbeat on the patterns of its group.

    Args:
        dropped: A pattern without remaining members, or "".
        records: Its tombstone.
        timers: The resolution, if due.
    """

    updated: Updated
    dropped: str = ""
    records: tuple[r.Record, ...] = ()
    timers: tuple[Timer, ...] = ()


NO_PATTERNS: Final = PatternChange(Updated.NO_CHANGE)


def pattern_change(
    group: ConsumerGroup,
    before: GroupMember,
    updated_member: GroupMember,
    profile: Profile,
    context: RequestContext,
) -> PatternChange:
    """Apply the pattern of a heartbeat, and request a resolution of the group's patterns if due.

    Args:
        updated_member: The member after the heartbeat.

    Raises:
        RefusedError: The pattern is new to the group and not valid.
    """
    old, new = before.subscribed_topic_regex, updated_member.subscribed_topic_regex
    if not (old or new or any(member.subscribed_topic_regex for member in group.members.values())):
        return NO_PATTERNS
    counts = _subscribers(group)
    is_new = new not in (old, "") and not counts[new]
    if is_new:
        check_pattern(new)
    dropped = old if old not in (new, "") and counts[old] == 1 else ""
    key = r.RegularExpressionKey(group.group_id, dropped)
    records = (r.Record(key, None),) if dropped else ()
    timers: tuple[Timer, ...] = ()
    if is_new or counts:
        wanted = counts - Counter([old]) + Counter([new])
        del wanted[""]
        if wanted and _is_due(group, len(wanted), is_new, profile, context):
            timers = (Timer(TimerKey(TimerKind.REGEX, group.group_id), context.now),)
    return PatternChange(_updated(group, old, new, counts), dropped, records, timers)


def check_pattern(pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION, with the reason, unless it is a valid RE2 expression."""
    if fault := re2_fault(pattern):
        reason = fault.partition(": ")[0]
        raise RefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression:"
            f" {_AS_RE2J.get(reason, reason)}.",
        )


def look_up_patterns(
    group: ConsumerGroup, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Resolve all patterns of a group; a different result bumps the group epoch."""
    if not group.members:
        return Outcome(None)
    patterns = sorted(_subscribers(group))
    found = {
        pattern: resolved_pattern(pattern, context.topics, context.now) for pattern in patterns
    }
    no_topics = r.RegularExpressionValue((), 0, 0.0)
    has_changed = any(
        each.topics != group.regexes.get(key, no_topics).topics for key, each in found.items()
    )
    compared = next_epoch(
        group,
        group.members.values(),
        profile,
        context,
        bumps=has_changed,
        regexes={**group.regexes, **found},
    )
    records = (
        r.Record(r.RegularExpressionKey(group.group_id, key), each) for key, each in found.items()
    )
    return Outcome(None, (*records, *compared.records), compared.timers, context.topics.version)


def resolved_pattern(pattern: str, topics: TopicsImage, now: float) -> r.RegularExpressionValue:
    """Return the topics whose whole name an RE2 expression matches."""
    subscription = Subscription(topic_regex=pattern)
    names = tuple(sorted(each for each in topics.by_name if subscription.matches(each)))
    return r.RegularExpressionValue(names, topics.version, now)


def _subscribers(group: ConsumerGroup) -> Counter[str]:
    return Counter(
        regex for member in group.members.values() if (regex := member.subscribed_topic_regex)
    )


def _updated(group: ConsumerGroup, old: str, new: str, counts: Counter[str]) -> Updated:
    if old == new:
        return Updated.NO_CHANGE
    if new == "" or (counts[new] and new in group.regexes):
        return Updated.RESOLVED
    return Updated.UNRESOLVED


def _is_due(
    group: ConsumerGroup, wanted: int, is_new: bool, profile: Profile, context: RequestContext
) -> bool:
    """Return whether patterns are resolved now.

    All patterns of a group are resolved together, so any of them has the time. Topics that existed
    when the coordinator loaded the group count as new.
    """
    last = next(iter(group.regexes.values()), None)
    if last is None:
        return True
    if context.now <= last.timestamp_s + BATCH_REFRESH_MIN_INTERVAL_S:
        return False
    refresh_s = context.settings.broker.regex_refresh_interval_s
    return (
        is_new
        or wanted != len(group.regexes)
        or last.version < context.topics.created_version
        or last.timestamp_s < context.loaded_at
        or (profile.refreshes_patterns and context.now > last.timestamp_s + refresh_s)
    )


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """A group's epoch and its records.

    Args:
        records: Empty without a change.
        timers: The computation of a target, where it does not wait for a heartbeat.
    """

    group_epoch: int
    records: tuple[r.Record, ...] = ()
    timers: tuple[Timer, ...] = ()


def subscribed_names(
    members: Iterable[GroupMember], regexes: Mapping[str, r.RegularExpressionValue]
) -> frozenset[str]:
    """Return the names of all topics that a group subscribes to.

    Args:
        regexes: Resolved patterns; those without members also count, which a replaced member may
            leave.
    """
    by_name = (member.subscribed_topic_names for member in members)
    return frozenset().union(*by_name, *(regex.topics for regex in regexes.values()))


def names_of(
    member: GroupMember, regexes: Mapping[str, r.RegularExpressionValue]
) -> frozenset[str]:
    """Return the names of all topics that a member subscribes to, by name and by pattern."""
    resolved = regexes.get(member.subscribed_topic_regex)
    return member.subscribed_topic_names.union(resolved.topics if resolved else ())


def is_touched(group: ConsumerGroup, before: TopicsImage, after: TopicsImage) -> bool:
    """Return whether a subscribed topic was created, deleted or changed."""
    names = subscribed_names(group.members.values(), group.regexes)
    return any(before.by_name.get(name) != after.by_name.get(name) for name in names)


def next_epoch(
    group: ConsumerGroup,
    members: Iterable[GroupMember],
    profile: Profile,
    context: RequestContext,
    *,
    bumps: bool,
    regexes: Mapping[str, r.RegularExpressionValue] | None = None,
) -> GroupEpoch:
    """Compare the subscriptions of a group with the topics; a difference bumps the epoch.

    Args:
        members: Its members after the request.
        bumps: Whether the epoch grows in any case.
        regexes: Resolved patterns; None for those of the group.
    """
    names = subscribed_names(members, group.regexes if regexes is None else regexes)
    compare = _hashed if profile.hashes_metadata else _listed
    found = compare(group, names, context, bumps=bumps)
    if found.group_epoch == group.group_epoch:
        return found
    return replace(found, timers=target_timers(group.group_id, profile, context))


def target_timers(group_id: str, profile: Profile, context: RequestContext) -> tuple[Timer, ...]:
    """Return the timer that computes a target at once; none where a heartbeat does it."""
    if not profile.assigns_by_itself:
        return ()
    return (Timer(TimerKey(TimerKind.ASSIGNMENT, group_id), context.now),)


def _listed(
    group: ConsumerGroup,
    names: frozenset[str],
    context: RequestContext,
    *,
    bumps: bool,
) -> GroupEpoch:
    now = partition_metadata(names, context.topics)
    records = []
    if now != (group.partition_metadata or r.PartitionMetadataValue({})):
        records.append(r.Record(r.PartitionMetadataKey(group.group_id), now))
    group_epoch = group.group_epoch
    if bumps or records:
        group_epoch += 1
        records.append(_record(group, group_epoch))
    return GroupEpoch(group_epoch, tuple(records))


def _hashed(
    group: ConsumerGroup,
    names: frozenset[str],
    context: RequestContext,
    *,
    bumps: bool,
) -> GroupEpoch:
    new_hash = metadata_hash(names, context.topics)
    before = group.metadata.metadata_hash if group.metadata else 0
    records = []
    group_epoch = group.group_epoch
    if bumps or new_hash != before:
        group_epoch += 1
        records.append(_record(group, group_epoch, new_hash))
    if group.partition_metadata is not None:
        # The hash replaces the record of 4.0.
        records.append(r.Record(r.PartitionMetadataKey(group.group_id), None))
    return GroupEpoch(group_epoch, tuple(records))


def _record(group: ConsumerGroup, group_epoch: int, metadata_hash: int = 0) -> r.Record:
    return r.Record(
        r.GroupMetadataKey(group.group_id), r.GroupMetadataValue(group_epoch, metadata_hash)
    )


def partition_metadata(names: frozenset[str], topics: TopicsImage) -> r.PartitionMetadataValue:
    """Return the ids and partition counts of topics, of those that exist."""
    found = (topics.by_name[name] for name in sorted(names) if name in topics.by_name)
    return r.PartitionMetadataValue(
        {each.name: (each.topic_id, each.partition_count) for each in found}
    )


def metadata_hash(names: frozenset[str], topics: TopicsImage) -> int:
    """Return a 64-bit hash of the topics, 0 for none; Kafka's XXH3 is not visible outside."""
    found = [topics.by_name[name] for name in sorted(names) if name in topics.by_name]
    if not found:
        return 0
    text = repr(
        [
            (each.topic_id, each.name, each.partition_count, [sorted(rack) for rack in each.racks])
            for each in found
        ]
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def topics_changed(
    group: ConsumerGroup, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Compare a group with changed topics, and resolve its patterns again."""
    return look_up_patterns(group, profile, context) if profile.assigns_by_itself else Outcome(None)


def loaded(group: ConsumerGroup, profile: Profile, context: RequestContext) -> Outcome[None]:
    """Detect changes during a failover (KIP-848, "Fail Over")."""
    changed = topics_changed(group, profile, context)
    timers = changed.timers or target_timers(group.group_id, profile, context)
    return Outcome(None, changed.records, timers, changed.topics_version)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a request on the members of its group."""

    group: ConsumerGroup
    sender: Sender
    updated_member: GroupMember

    def members(self) -> dict[str, GroupMember]:
        """Return the members after the request."""
        kept = self.group.members.items()
        members = {key: each for key, each in kept if key != self.sender.predecessor}
        members[self.updated_member.member_id] = self.updated_member
        return members

    def records(self) -> tuple[r.Record, ...]:
        """Return the records of a replaced member, and of the changes of the sender."""
        if self.updated_member is self.sender.member:
            return self.sender.records
        changed = r.member_metadata(self.group.group_id, self.updated_member)
        return (*self.sender.records, changed)

    def counted(self) -> list[GroupMember]:
        """Return the members as the coordinator counts them, the sender last.

        A successor that is a member already counts twice, with its old and its new state
        (ConsumerGroup.computeSubscribedTopicNames).
        """
        before = self.sender.predecessor or self.updated_member.member_id
        kept = [member for member in self.group.members.values() if member.member_id != before]
        return [*kept, self.updated_member]

    @property
    def subscribed_names(self) -> frozenset[str]:
        """The topics of the member, also absent ones; a pattern counts once it is resolved."""
        return names_of(self.updated_member, self.group.regexes)

    def subscribed_ids(self, context: RequestContext) -> frozenset[TopicId]:
        """Return the topics of the member that exist."""
        found = (
            context.topics.by_name.get(subscribed_name) for subscribed_name in self.subscribed_names
        )
        return frozenset(each.topic_id for each in found if each)


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """The subscriptions of a group after the request.

    Args:
        has_changed: Whether the member's subscription has changed.
        regexes: Resolved patterns of the group.
        timers: The resolution of patterns, if due.
        topics_version: Metadata version they were compared with; None if not compared.
    """

    group_epoch: int
    has_changed: bool
    regexes: Mapping[str, r.RegularExpressionValue]
    records: tuple[r.Record, ...] = ()
    timers: tuple[Timer, ...] = ()
    topics_version: int | None = None

    @property
    def is_compared(self) -> bool:
        return self.topics_version is not None


def subscription(change: Change, profile: Profile, context: RequestContext) -> GroupSubscription:
    """Return the subscriptions of a group, with a new epoch after a change.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION.
    """
    group, before, updated_member = change.group, change.sender.member, change.updated_member
    if updated_member.classic and not profile.classic_join_drops_pattern:
        pattern = NO_PATTERNS
    else:
        pattern = pattern_change(group, before, updated_member, profile, context)
    has_changed = (
        updated_member.subscribed_topic_names != before.subscribed_topic_names
        or pattern.updated is not Updated.NO_CHANGE
    )
    epoch = group.group_epoch
    bumps = (
        epoch == 0
        or (updated_member is not before and _needs_target(change, pattern.updated, profile))
        or _changes_assignor(change, profile, context)
    )
    if not bumps and group.topics_version == context.topics.version:
        return GroupSubscription(epoch, has_changed, group.regexes, pattern.records, pattern.timers)
    regexes = {key: regex for key, regex in group.regexes.items() if key != pattern.dropped}
    compared = next_epoch(group, change.counted(), profile, context, bumps=bumps, regexes=regexes)
    return GroupSubscription(
        compared.group_epoch,
        has_changed,
        regexes,
        (*pattern.records, *compared.records),
        pattern.timers,
        context.topics.version,
    )


def _needs_target(change: Change, pattern: Updated, profile: Profile) -> bool:
    """Return whether the assignor depends on the changes of the member.

    A new pattern bumps the epoch once it is resolved, so that it causes one rebalance and not two.
    """
    before, updated_member = change.sender.member, change.updated_member
    is_resolved = pattern is Updated.RESOLVED and (
        updated_member.subscribed_topic_regex != "" or profile.dropped_pattern_bumps
    )
    return (
        updated_member.subscribed_topic_names != before.subscribed_topic_names
        or is_resolved
        or _changes_client_assignors(before, updated_member)
        or (
            profile.every_join_bumps
            and before.member_id not in change.group.members
            and change.sender.predecessor is None
        )
    )


def _changes_client_assignors(before: GroupMember, updated_member: GroupMember) -> bool:
    """Return whether client-side assignors or their metadata are new.

    Those of a classic member do not count: assignors embed in each JoinGroup what the member owns.
    """
    if before.classic or updated_member.classic:
        return False
    return updated_member.client_assignors != before.client_assignors


def _changes_assignor(change: Change, profile: Profile, context: RequestContext) -> bool:
    group, updated_member = change.group, change.updated_member
    bump = profile.assignor_bump
    if bump is AssignorBump.NEVER or updated_member.classic:
        return False
    changes_vote = updated_member.server_assignor != change.sender.member.server_assignor
    may_tie = bump is AssignorBump.EVERY_HEARTBEAT and target_assignment.is_contested(group)
    if not (changes_vote or may_tie):
        return False
    # With a tie Kafka may choose differently in these two places.
    after = target_assignment.preferred_assignor(
        group, change.counted(), context, updated_member.member_id
    )
    return after != target_assignment.described_assignor(group, context)
