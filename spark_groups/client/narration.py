"""Each event as one sentence, for logs, the snapshot's timeline and transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from spark_groups.client.parts import Event
from spark_groups.offsets import events as offset
from spark_groups.protocol import events as member
from spark_groups.types import OffsetRange, TopicId, TopicIdPartition

SHOWN = 8
"""How many partitions a sentence names before it counts the rest."""

MISSING_RIGHTS: Final = {
    "GROUP_AUTHORIZATION_FAILED": " (the principal needs DESCRIBE on the group)",
    "TOPIC_AUTHORIZATION_FAILED": (
        " (the principal needs DESCRIBE on every topic that a member of the group subscribes to)"
    ),
}
"""What is missing where a group's description is refused."""

NameOf = Callable[[TopicId], str | None]


class Severity(Enum):
    """How loud an event is; the names of the logging levels."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


def narrate(event: Event, name_of: NameOf) -> tuple[Severity, str]:
    """Return how loud an event is, and what it says.

    Args:
        event: The event.
        name_of: Name of a topic id, None if it is not known.
    """
    if isinstance(event, member.MemberEvent):
        severity, text = _of_member(event, name_of)
        return severity, f"member {event.member_id} at epoch {event.member_epoch} {text}"
    return _of_offsets(event, name_of)


def _of_member(  # noqa: PLR0911
    event: member.MemberEvent, name_of: NameOf
) -> tuple[Severity, str]:
    match event:
        case member.EpochChanged(previous=previous):
            return Severity.INFO, f"came from epoch {previous}"
        case member.PartitionsAssigned(partitions=partitions):
            return Severity.INFO, f"was assigned {_keys(partitions, name_of)}"
        case member.RevocationTold(partitions=partitions, deadline=deadline):
            left_s = deadline - event.at
            return (
                Severity.INFO,
                f"is to give up {_keys(partitions, name_of)} within {left_s:.0f} s",
            )
        case member.PartitionsRevoked(partitions=partitions):
            return Severity.INFO, f"gave up {_keys(partitions, name_of)}"
        case member.PartitionsLost(partitions=partitions, reason=reason):
            return Severity.WARNING, f"lost {_keys(partitions, name_of)}: {reason}"
        case member.InstanceUnreleased(instance_id=instance_id, deadline=deadline):
            left_s = deadline - event.at
            return (
                Severity.WARNING,
                f"waits up to {left_s:.0f} s until instance id {instance_id!r} is released",
            )
        case member.SessionTimeoutKnown(session_timeout_ms=timeout_ms):
            return Severity.INFO, f"has a session of {timeout_ms} ms without a heartbeat"
        case member.SettingsUnknown(reason=reason):
            return Severity.INFO, f"may not know the session time-out and assumes one: {reason}"
        case member.SessionTooShort(session_timeout_ms=timeout_ms, restart_s=restart_s):
            return (
                Severity.WARNING,
                f"is static, but the application took {restart_s:.0f} s to start and its session"
                f" lasts {timeout_ms} ms: a restart gives its partitions away; {event.command}",
            )
        case member.HeartbeatRefused(error=error, message=message):
            return Severity.WARNING, f"was refused a heartbeat: {error} {message}".rstrip()
        case member.MemberFailed(message=message):
            return Severity.ERROR, f"was refused for good: {message}"
        case _:
            return _of_liveness(event)


def _of_liveness(event: member.MemberEvent) -> tuple[Severity, str]:
    match event:
        case member.BatchRunsLong(batch_age_s=age_s):
            return Severity.WARNING, f"waits for a batch that has been running for {age_s:.0f} s"
        case member.BatchOverdue(batch_age_s=age_s, limit_s=limit_s):
            return (
                Severity.ERROR,
                f"leaves: a batch has been running for {age_s:.0f} s, maxBatchTime is"
                f" {limit_s:g} s; what it reads is not committed",
            )
        case member.QueryGone(idle_s=idle_s, limit_s=limit_s):
            return (
                Severity.ERROR,
                f"leaves: Spark has not called for {idle_s:.0f} s and no batch runs (limit:"
                f" {limit_s:g} s, maxIdleTime); it joins again if Spark calls",
            )
        case member.QueryReturned():
            return Severity.WARNING, "joins again: Spark called after all"
        case _:
            return Severity.INFO, "left the group"


def _of_offsets(  # noqa: PLR0911
    event: offset.OffsetEvent, name_of: NameOf
) -> tuple[Severity, str]:
    match event:
        case offset.PositionFound(topic=topic, position=position, committed=committed):
            where = "committed" if committed else "the group's start"
            return Severity.DEBUG, f"{topic}-{event.key.partition} stands at {position} ({where})"
        case offset.BatchPlanned(plan=plan):
            return Severity.DEBUG, f"planned {_ranges(plan.ranges)} at epoch {plan.member_epoch}"
        case offset.BatchFinished(plan=plan):
            return Severity.DEBUG, f"finished {_ranges(plan.ranges)} of epoch {plan.member_epoch}"
        case offset.OffsetsCommitted(member_epoch=member_epoch, partitions=count):
            return Severity.DEBUG, f"committed {count} partitions at epoch {member_epoch}"
        case offset.CommitRefused(error=error, partitions=count):
            return Severity.INFO, f"a commit of {count} partitions was refused: {error}; sent again"
        case offset.RangesLost(ranges=ranges, reason=reason):
            return (
                Severity.WARNING,
                f"{_ranges(ranges)} not committed: {reason}; read again, unless it comes back"
                " untouched",
            )
        case offset.RangesInherited(ranges=ranges):
            return Severity.INFO, f"took over {_ranges(ranges)} that an earlier run finished"
        case offset.RangesOverruled(ranges=ranges):
            return (
                Severity.WARNING,
                f"this query finished {_ranges(ranges)}, but another offset was committed since,"
                " and it holds: reading goes on there",
            )
        case _:
            return _of_incidents(event, name_of)


def _of_incidents(  # noqa: PLR0911
    event: offset.OffsetEvent, name_of: NameOf
) -> tuple[Severity, str]:
    match event:
        case offset.DataLost(message=message):
            return Severity.ERROR, message
        case offset.RevocationBudgetUsed(percent=percent, waiting_for=waiting_for):
            advice = (
                f"; maxOffsetsPerTrigger={event.fitting_offsets} would have fitted"
                if event.fitting_offsets
                else ""
            )
            return (
                Severity.WARNING,
                f"{percent} % of the rebalance time-out is used up, a batch still reads"
                f" {_keys(waiting_for, name_of)}{advice}",
            )
        case offset.RevocationHeld(partitions=partitions, release_by=release_by):
            left_s = release_by - event.at
            return (
                Severity.INFO,
                f"the rebalance listener has {left_s:.0f} s before {_keys(partitions, name_of)}"
                " is given up",
            )
        case offset.PartitionsGivenUp(partitions=partitions):
            return (
                Severity.ERROR,
                f"gave up {_keys(partitions, name_of)} uncommitted so that the rest is kept:"
                " the batch outlasted the rebalance time-out",
            )
        case offset.RebalanceTimeoutRaised(rebalance_timeout_ms=timeout_ms):
            return (
                Severity.WARNING,
                f"Spark calls seldom: asked the coordinator for {timeout_ms} ms to give up"
                " partitions; set kafka.max.poll.interval.ms to suit the trigger",
            )
        case offset.CoordinatorFound(node=node):
            return Severity.INFO, f"the coordinator is {node}"
        case offset.CoordinatorMissing(error=error):
            return Severity.WARNING, f"nobody coordinates the group yet: {error}; asked again"
        case offset.StartUnknown(error=error, partitions=partitions):
            return (
                Severity.WARNING,
                f"nobody can say where to start in {_keys(partitions, name_of)}: {error};"
                " asked again",
            )
        case offset.DescriptionRefused(error=error):
            cause = MISSING_RIGHTS.get(error, "")
            return (
                Severity.WARNING,
                f"the group may not be described: {error}{cause}; the member lives without knowing"
                " what it is still to be given",
            )
        case offset.RequestUnanswered(request=request, reason=reason):
            return Severity.WARNING, f"{request} got no answer: {reason}"
        case _:
            return _of_topics(event, name_of)


def _of_topics(  # noqa: PLR0911
    event: offset.OffsetEvent, name_of: NameOf
) -> tuple[Severity, str]:
    match event:
        case offset.RangesWithheld(withheld=withheld, unresolved=unresolved):
            named = _listed([str(each) for each in withheld], unresolved)
            return Severity.INFO, f"waits for {named}, withheld until the present owner lets go"
        case offset.AvailableNowUnsettled(is_harmless=True, waited_s=waited_s):
            return (
                Severity.INFO,
                f"ends without {_listed([str(each) for each in event.withheld])}, not released"
                f" within {waited_s:.0f} s: no rows wait there",
            )
        case offset.AvailableNowUnsettled(waited_s=waited_s):
            advice = (
                "; availableNowUnsettled=wait waits up to the session timeout plus 10 s for it,"
                " then fails"
            )
            return (
                Severity.WARNING,
                f"AvailableNow cannot read all that is meant for it: after {waited_s:.0f} s"
                f" {_what_is_missing(event, name_of)}. The next run reads it"
                f"{'' if event.has_waited else advice}",
            )
        case offset.NothingMatches(pattern=pattern):
            return (
                Severity.WARNING,
                f"subscribePattern {pattern!r} matches no topic that exists and may be seen:"
                " AvailableNow ends without having read anything",
            )
        case offset.PartitionsReadWhole(topic=topic, partitions=partitions, command=command):
            named = _listed([f"{topic}-{each}" for each in partitions])
            return (
                Severity.WARNING,
                f"{named}: no committed offset, although {topic} was read before. Whether these"
                " partitions were added since or lost their offsets cannot be told, so they are"
                " read from the beginning: rows may be read again, none is skipped. To skip what"
                f" is there, stop all members of the group and run: {command}",
            )
        case offset.CheckpointOfAnotherGroup(topics=topics, group_id=group_id):
            return (
                Severity.WARNING,
                f"the checkpoint was written by group {event.former_group_id!r}:"
                f" {', '.join(topics)} is read from the offsets that {group_id!r} has committed,"
                f" not from where {event.former_group_id!r} stood",
            )
        case offset.TopicsMissing(names=names):
            return Severity.WARNING, f"no such topic yet: {', '.join(names)}; waiting for it"
        case offset.TopicRecreated(name=name, unread=unread):
            return (
                Severity.WARNING,
                f"topic {name} was deleted and created again; {unread} known rows of the old one"
                " were never read; the new one is read from its beginning",
            )
        case offset.TopicDeleted(name=name, unread=unread):
            return (
                Severity.WARNING,
                f"topic {name} was deleted, or may not be seen any more; {unread} known rows of it"
                " were never read",
            )
        case offset.TopicGone(partitions=partitions):
            return Severity.WARNING, f"{_keys(partitions, name_of)} is gone with its topic"
        case _:
            return Severity.DEBUG, str(event)


def _what_is_missing(event: offset.AvailableNowUnsettled, name_of: NameOf) -> str:
    parts = []
    if event.withheld:
        known = [each.rows for each in event.withheld if each.rows is not None]
        least = "" if len(known) == len(event.withheld) and not event.unresolved else "at least "
        who = ", ".join(event.holders[:SHOWN]) or "a member that the group does not name"
        parts.append(
            f"{_listed([str(each) for each in event.withheld], event.unresolved)} are not released"
            f" by {who}, {least}{sum(known)} rows"
        )
    if event.unready:
        parts.append(f"nobody can say where to start in {_keys(event.unready, name_of)}")
    if not event.is_told or not parts:
        parts.append("the group has not said what is meant for this member")
    return "; ".join(parts)


def _keys(partitions: Iterable[TopicIdPartition], name_of: NameOf) -> str:
    named = [
        f"{name_of(key.topic_id) or key.topic_id}-{key.partition}" for key in sorted(partitions)
    ]
    return _listed(named) or "nothing"


def _ranges(ranges: Iterable[OffsetRange]) -> str:
    named = [f"{each.topic_partition} [{each.from_offset}, {each.until_offset})" for each in ranges]
    return _listed(named) or "no ranges"


def _listed(named: list[str], unnamed: int = 0) -> str:
    rest = len(named[SHOWN:]) + unnamed
    return ", ".join(named[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
