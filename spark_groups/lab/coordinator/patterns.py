"""Subscriptions by pattern: what is valid, when patterns are looked up, and what comes of it.

A heartbeat only asks for the lookup; it is done beside the event loop, of all patterns of a group
at once so that they are one rebalance, and its result is a write of its own.
Source: KIP-848, "Regex Based Subscription"; GroupMetadataManager.maybeUpdateRegularExpressions;
TopicRegexResolver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import group_epoch
from spark_groups.lab.coordinator.effects import Outcome, Surroundings, Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import (
    Record,
    RegularExpressionKey,
    RegularExpressionValue,
)
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.protocol.subscription import Subscription, re2_fault
from spark_groups.values import dataclass

BATCH_REFRESH_MIN_INTERVAL_S: Final = 10.0
"""Patterns are not looked up again earlier than this."""

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
"""How RE2/J, which Kafka has, puts what RE2 says."""


class Updated(Enum):
    """What a heartbeat makes of its member's pattern."""

    NO_CHANGE = "it is the one it had"
    UNRESOLVED = "it is another one: the group epoch grows once it is looked up"
    RESOLVED = "it is another one whose topics are known, or none: the group epoch grows"


@dataclass(frozen=True, slots=True)
class PatternChange:
    """What a heartbeat does to the patterns of its group.

    Args:
        updated: What became of the member's own pattern.
        given_up: A pattern that nobody has any more, "" if there is none.
        records: Its tombstone.
        timers: The lookup, if one is due.
    """

    updated: Updated
    given_up: str = ""
    records: tuple[Record, ...] = ()
    timers: tuple[Timer, ...] = ()


NO_PATTERNS: Final = PatternChange(Updated.NO_CHANGE)


def change(
    group: ConsumerGroup,
    before: GroupMember,
    told: GroupMember,
    profile: Profile,
    around: Surroundings,
) -> PatternChange:
    """Take the pattern of a heartbeat, and ask for a lookup of the group's patterns if one is due.

    Args:
        group: The group before the heartbeat.
        before: The member as it was.
        told: The member with what the heartbeat says of it.
        profile: Which coordinator it is.
        around: The time, the topics and the settings.

    Raises:
        RefusedError: The pattern is new to the group and not valid.
    """
    old, new = before.subscribed_topic_regex, told.subscribed_topic_regex
    if not (old or new or any(each.subscribed_topic_regex for each in group.members.values())):
        return NO_PATTERNS
    counts = _subscribers(group)
    is_new = new not in (old, "") and not counts[new]
    if is_new:
        check_valid(new)
    given_up = old if old not in (new, "") and counts[old] == 1 else ""
    key = RegularExpressionKey(group.group_id, given_up)
    records = (Record(key, None),) if given_up else ()
    timers: tuple[Timer, ...] = ()
    if is_new or counts:
        wanted = counts - Counter([old]) + Counter([new])
        del wanted[""]
        if wanted and _is_due(group, len(wanted), is_new, profile, around):
            timers = (Timer(TimerKey(TimerKind.REGEX, group.group_id), around.now),)
    return PatternChange(_updated(group, old, new, counts), given_up, records, timers)


def check_valid(pattern: str) -> None:
    """Refuse what is no RE2 expression.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION, with the reason.
    """
    if fault := re2_fault(pattern):
        reason = fault.partition(": ")[0]
        raise RefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression:"
            f" {_AS_RE2J.get(reason, reason)}.",
        )


def fired(
    group: ConsumerGroup, _timer: Timer, profile: Profile, around: Surroundings
) -> Outcome[None]:
    """Look up the patterns of a group that a heartbeat asked for."""
    return look_up(group, profile, around)


def look_up(group: ConsumerGroup, profile: Profile, around: Surroundings) -> Outcome[None]:
    """Look up all patterns of a group; other topics than before are a new group epoch.

    Args:
        group: The group.
        profile: Which coordinator it is.
        around: The time and the topics.
    """
    if not group.members:
        return Outcome(None)
    patterns = sorted(_subscribers(group))
    found = {each: resolved(each, around.topics, around.now) for each in patterns}
    has_changed = any(each.topics != _topics(group.regexes, key) for key, each in found.items())
    compared = group_epoch.compared(
        group,
        group.members.values(),
        profile,
        around,
        bumps=has_changed,
        regexes={**group.regexes, **found},
    )
    records = (
        Record(RegularExpressionKey(group.group_id, key), each) for key, each in found.items()
    )
    return Outcome(None, (*records, *compared.records), compared.timers, around.topics.version)


def resolved(pattern: str, topics: TopicsImage, now: float) -> RegularExpressionValue:
    """Return the topics whose whole name a pattern matches.

    Args:
        pattern: An RE2 expression.
        topics: All topics.
        now: Seconds.
    """
    subscription = Subscription(topic_regex=pattern)
    names = tuple(sorted(each for each in topics.by_name if subscription.matches(each)))
    return RegularExpressionValue(names, topics.version, now)


def _subscribers(group: ConsumerGroup) -> Counter[str]:
    return Counter(
        regex for each in group.members.values() if (regex := each.subscribed_topic_regex)
    )


def _updated(group: ConsumerGroup, old: str, new: str, counts: Counter[str]) -> Updated:
    if old == new:
        return Updated.NO_CHANGE
    if new == "" or (counts[new] and new in group.regexes):
        return Updated.RESOLVED
    return Updated.UNRESOLVED


def _is_due(
    group: ConsumerGroup, wanted: int, is_new: bool, profile: Profile, around: Surroundings
) -> bool:
    """Tell whether patterns are looked up now.

    All of a group are looked up together, so that any of them says when that was. A coordinator
    takes all topics as new that were there when it began.
    """
    last = next(iter(group.regexes.values()), None)
    if last is None:
        return True
    if around.now <= last.timestamp_s + BATCH_REFRESH_MIN_INTERVAL_S:
        return False
    refresh_s = around.settings.broker.regex_refresh_interval_s
    return (
        is_new
        or wanted != len(group.regexes)
        or last.version < around.topics.created_version
        or last.timestamp_s < around.loaded_at
        or (profile.refreshes_patterns and around.now > last.timestamp_s + refresh_s)
    )


def _topics(regexes: Mapping[str, RegularExpressionValue], pattern: str) -> tuple[str, ...]:
    return regexes[pattern].topics if pattern in regexes else ()
