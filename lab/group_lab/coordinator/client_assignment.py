"""Client-side assignors, and targets computed by a member (KIP-848, "Client Side Mode").

One computation runs at a time. A member that exceeds its timeout is not fenced; another member is
chosen. Kafka never shipped this: docs/decisions/0012 covers what the KIP leaves open.

Source: KIP-848, "Assignor Selection", "Metadata Version Handling", "Member Selection", "Client Side
Mode", ConsumerGroupPrepareAssignment, ConsumerGroupInstallAssignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from group_lab.coordinator import messages as m
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import (
    Computation,
    CoordinatorErrorCode,
    Outcome,
    RefusedError,
    RequestContext,
    Rule,
    Timer,
    TimerKey,
    TimerKind,
    check_rules,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import ClientAssignor, GroupMember
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.subscriptions import names_of
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import TopicIdPartition

_RULES: Final[tuple[Rule[ClientAssignor], ...]] = (
    Rule(lambda each: not each.name, "Assignor.Name can't be empty."),
    Rule(lambda each: each.minimum_version < -1, "Assignor.MinimumVersion must be >= -1."),
    Rule(
        lambda each: each.maximum_version < max(0, each.minimum_version),
        "Assignor.MaximumVersion must be >= 0 and >= Assignor.MinimumVersion.",
    ),
    Rule(
        lambda each: not each.minimum_version <= each.metadata_version <= each.maximum_version,
        "Assignor.Version must be between Assignor.MinimumVersion and Assignor.MaximumVersion.",
    ),
)


def with_assignors(
    member: GroupMember, request: HeartbeatRequest, members: Mapping[str, GroupMember]
) -> GroupMember:
    """Return a member with the client-side assignors of its heartbeat.

    Raises:
        RefusedError: INVALID_REQUEST for a heartbeat that is never valid (KIP-848, "Request
            Validation"), UNSUPPORTED_ASSIGNOR if versions do not overlap with those of a member.
    """
    if not isinstance(request, m.KipHeartbeatRequest) or request.client_assignors is None:
        return member
    if request.client_assignors and request.server_assignor is not None:
        message = "ServerAssignor and ClientAssignors can't be used together."
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    for client_assignor in request.client_assignors:
        check_rules(client_assignor, _RULES)
    changed = replace(member, client_assignors=request.client_assignors)
    _check_versions(changed, members)
    return changed if changed != member else member


def _check_versions(member: GroupMember, members: Mapping[str, GroupMember]) -> None:
    for own in member.client_assignors:
        for other in members.values():
            theirs = None if _is_same(member, other) else _named(other, own.name)
            if theirs and other.classic:
                _check_reads_classic(own, theirs)
            elif theirs and not (
                own.minimum_version <= theirs.maximum_version
                and theirs.minimum_version <= own.maximum_version
            ):
                raise RefusedError(
                    ErrorCode.UNSUPPORTED_ASSIGNOR,
                    f"The versions {own.minimum_version} to {own.maximum_version} of ClientAssignor"
                    f" {own.name} do not overlap with those of member {other.member_id}.",
                )


def _check_reads_classic(own: ClientAssignor, theirs: ClientAssignor) -> None:
    """Raise INVALID_REQUEST if an assignor cannot read the metadata of a classic member."""
    if theirs.metadata and own.minimum_version > theirs.metadata_version:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"ClientAssignor {own.name} must support version {theirs.metadata_version}, that of the"
            " metadata of members that use the classic protocol.",
        )


def _is_same(member: GroupMember, other: GroupMember) -> bool:
    """Return whether a member is the next incarnation of another one, or replaces it."""
    same_instance = member.instance_id is not None and member.instance_id == other.instance_id
    return member.member_id == other.member_id or same_instance


def chosen(members: Mapping[str, GroupMember]) -> str | None:
    """Return the client-side assignor of a group; None for a server-side one.

    Every member must support it and some member must be able to run it; the preferred one of most
    members wins.
    """
    if not members:
        return None
    named = [
        {client_assignor.name for client_assignor in member.client_assignors}
        for member in members.values()
    ]
    common = {each for each in set.intersection(*named) if readers(members, each)}
    votes = Counter(
        next(
            client_assignor.name
            for client_assignor in member.client_assignors
            if client_assignor.name in common
        )
        for member in members.values()
        if common
    )
    return min(votes, key=lambda name: (-votes[name], name), default=None)


def readers(members: Mapping[str, GroupMember], assignor: str) -> list[str]:
    """Return the members that may run an assignor: they handle the versions of all members.

    If there are none, return the members that can read the current metadata of all.
    """
    all_entries = {
        member_id: own
        for member_id, member in members.items()
        if (own := _named(member, assignor)) is not None
    }
    least = min(each.minimum_version for each in all_entries.values())
    greatest = max(each.maximum_version for each in all_entries.values())
    # No response asks a classic member to compute.
    entries = {each: own for each, own in all_entries.items() if not members[each].classic}
    handles_all = [
        member_id
        for member_id, own in entries.items()
        if own.minimum_version <= least and own.maximum_version >= greatest
    ]
    used = {each.metadata_version for each in all_entries.values()}
    return handles_all or [
        member_id
        for member_id, own in entries.items()
        if own.minimum_version <= min(used) and own.maximum_version >= max(used)
    ]


def entry_of(member: GroupMember, assignor: str) -> ClientAssignor:
    """Return a member's entry for an assignor, or the defaults."""
    return _named(member, assignor) or ClientAssignor(assignor)


def _named(member: GroupMember, assignor: str) -> ClientAssignor | None:
    return next(
        (
            client_assignor
            for client_assignor in member.client_assignors
            if client_assignor.name == assignor
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """The effect of a heartbeat or a join on a computation.

    Args:
        should_compute: Whether the answer asks the sender to compute.
    """

    should_compute: bool = False
    timers: tuple[Timer, ...] = ()


NO_PROGRESS: Final = Progress()


def progress(
    group_id: str,
    members: Mapping[str, GroupMember],
    sender_id: str,
    context: RequestContext,
    *,
    is_due: bool,
) -> Progress:
    """Start, announce, keep or stop the computation of a target.

    Args:
        members: The members after the heartbeat.
        is_due: Whether the group epoch is ahead of the target.
    """
    running = context.computing
    computation = running.computation if running else None
    assignor = chosen(members) if is_due else None
    if assignor is None:
        return Progress(timers=(_stopped(group_id),) if running else ())
    if (
        running is None
        or computation is None
        or computation.assignor != assignor
        or computation.member_id not in members
    ):
        running = _started(group_id, members, context.now, first=sender_id)
        if running is None or running.computation is None:
            return Progress()
        computation = running.computation
    elif computation.member_id != sender_id or computation.is_announced:
        return Progress(computation.member_id == sender_id and computation.prepared is None)
    if computation.member_id != sender_id:
        return Progress(timers=(running,))
    announced = replace(computation, is_announced=True)
    at = context.now + members[sender_id].rebalance_timeout_ms / 1000
    return Progress(should_compute=True, timers=(replace(running, at=at, computation=announced),))


def timed_out(
    group: ConsumerGroup, timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Choose another member after a timeout."""
    if timer.computation is None or group.group_epoch <= group.assignment_epoch:
        return Outcome(None)
    previous = timer.computation.member_id
    started = _started(group.group_id, group.members, context.now, last=previous)
    return Outcome(None, timers=(started,) if started else ())


def prepare(
    group: ConsumerGroup,
    request: m.PrepareAssignmentRequest,
    _profile: Profile,
    context: RequestContext,
) -> Outcome[m.PrepareAssignmentResponse]:
    """Send the chosen member the current state of the group."""
    try:
        running, computation = _computation(group, request, context)
    except RefusedError as refusal:
        return Outcome(
            m.PrepareAssignmentResponse(error_code=refusal.code, error_message=refusal.message)
        )
    prepared = _prepared(group, computation.assignor, context)
    timer = replace(running, computation=replace(computation, prepared=prepared))
    return Outcome(prepared, timers=(timer,))


def install(
    group: ConsumerGroup,
    request: m.InstallAssignmentRequest,
    _profile: Profile,
    context: RequestContext,
) -> Outcome[m.InstallAssignmentResponse]:
    """Install the target from the chosen member, even if the group has changed since.

    A target for an epoch that has one is refused: the assignment epoch never goes back.
    """
    try:
        _, computation = _computation(group, request, context)
        installed_epoch, records = _installed(group, request, computation.prepared)
    except RefusedError as refusal:
        return Outcome(
            m.InstallAssignmentResponse(error_code=refusal.code, error_message=refusal.message),
            timers=_next_started(group, request.member_id, context, refusal),
        )
    is_due = group.group_epoch > installed_epoch
    started = _started(group.group_id, group.members, context.now) if is_due else None
    return Outcome(
        m.InstallAssignmentResponse(), records, timers=(started or _stopped(group.group_id),)
    )


def _key(group_id: str) -> TimerKey:
    return TimerKey(TimerKind.CLIENT_ASSIGNMENT, group_id)


def _stopped(group_id: str) -> Timer:
    return Timer(_key(group_id), None)


def _started(
    group_id: str,
    members: Mapping[str, GroupMember],
    now: float,
    *,
    first: str = "",
    last: str = "",
) -> Timer | None:
    """Choose a member and start its timeout; None without an assignor or a present member."""
    assignor = chosen(members)
    if assignor is None:
        return None
    present = [each for each in readers(members, assignor) if not members[each].is_away]
    if not present:
        return None
    member_id = min(present, key=lambda each: (each == last, each != first, each))
    at = now + members[member_id].rebalance_timeout_ms / 1000
    return Timer(_key(group_id), at, computation=Computation(member_id, assignor))


def _next_started(
    group: ConsumerGroup, member_id: str, context: RequestContext, refusal: RefusedError
) -> tuple[Timer, ...]:
    """Choose another member after an invalid result."""
    if refusal.code != CoordinatorErrorCode.INVALID_ASSIGNMENT:
        return ()
    is_due = group.group_epoch > group.assignment_epoch
    started = _started(group.group_id, group.members, context.now, last=member_id)
    return (started if started and is_due else _stopped(group.group_id),)


def _computation(
    group: ConsumerGroup,
    request: m.PrepareAssignmentRequest | m.InstallAssignmentRequest,
    context: RequestContext,
) -> tuple[Timer, Computation]:
    """Return the computation of a request, checked in the order of the KIP.

    Raises:
        RefusedError: INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
    """
    if not request.group_id or not request.member_id or request.member_epoch < 0:
        message = "GroupId and MemberId can't be empty, and MemberEpoch must be >= 0."
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    if not group.is_consumer_group:
        message = f"Group {request.group_id} not found."
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    member = group.members.get(request.member_id)
    if member is None:
        message = f"Member {request.member_id} is not a member of group {request.group_id}."
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    if member.member_epoch != request.member_epoch:
        message = f"The member epoch is {member.member_epoch}, not {request.member_epoch}."
        raise RefusedError(ErrorCode.STALE_MEMBER_EPOCH, message)
    running = context.computing
    if (
        running is None
        or running.computation is None
        or running.computation.member_id != request.member_id
    ):
        message = f"Member {request.member_id} is not the one that computes the assignment."
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return running, running.computation


def _prepared(
    group: ConsumerGroup, assignor: str, context: RequestContext
) -> m.PrepareAssignmentResponse:
    members = []
    topics = {}
    for member_id, member in sorted(group.members.items()):
        names = names_of(member, group.regexes)
        found = [each for name in sorted(names) if (each := context.topics.by_name.get(name))]
        topics.update({each.name: each for each in found})
        entry = entry_of(member, assignor)
        target = group.targets.get(member_id, r.TargetMemberValue())
        members.append(
            m.PreparedMember(
                member_id=member_id,
                member_epoch=member.member_epoch,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                subscribed_topic_ids=frozenset(each.topic_id for each in found),
                reason=entry.reason,
                metadata_version=entry.metadata_version,
                metadata_bytes=entry.metadata,
                topic_partitions=target.partitions,
            )
        )
    return m.PrepareAssignmentResponse(
        group_epoch=group.group_epoch,
        assignor_name=assignor,
        members=tuple(members),
        topics=tuple(
            m.PreparedTopic(
                topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partition_count
            )
            for name, topic in sorted(topics.items())
        ),
    )


def _installed(
    group: ConsumerGroup,
    request: m.InstallAssignmentRequest,
    prepared: m.PrepareAssignmentResponse | None,
) -> tuple[int, tuple[r.Record, ...]]:
    """Return the epoch of the new target and its records; raise INVALID_ASSIGNMENT."""
    if prepared is None or prepared.group_epoch != request.group_epoch:
        raise _invalid(f"Its group epoch was never sent to {request.member_id}.")
    _check_is_newer(group, prepared)
    epoch = r.Record(
        r.TargetMetadataKey(group.group_id),
        r.TargetMetadataValue(prepared.group_epoch, error=request.error),
    )
    if request.error:
        return prepared.group_epoch, (epoch,)
    _check(request, prepared)
    by_member = {member.member_id: member for member in request.members}
    records = []
    for member in prepared.members:
        member_id = _current_id(group, member)
        computed = by_member.get(member.member_id, m.InstalledMember(member_id=member.member_id))
        value = r.TargetMemberValue(
            computed.partitions, computed.metadata_version, computed.metadata_bytes
        )
        if member_id is not None and group.targets.get(member_id) != value:
            records.append(r.Record(r.TargetMemberKey(group.group_id, member_id), value))
    return prepared.group_epoch, (*records, epoch)


def _check_is_newer(group: ConsumerGroup, prepared: m.PrepareAssignmentResponse) -> None:
    if prepared.group_epoch <= group.assignment_epoch:
        raise _invalid(f"The group has a target for epoch {group.assignment_epoch}.")


def _current_id(group: ConsumerGroup, prepared: m.PreparedMember) -> str | None:
    """Return the current id of a prepared member, or that of its static successor."""
    if prepared.member_id in group.members:
        return prepared.member_id
    if prepared.instance_id is None:
        return None
    successor = group.static_member(prepared.instance_id)
    return successor.member_id if successor else None


def _check(request: m.InstallAssignmentRequest, prepared: m.PrepareAssignmentResponse) -> None:
    """Check a result against its input (KIP-848, "Assignment Validation")."""
    expected = {
        TopicIdPartition(topic.topic_id, partition)
        for topic in prepared.topics
        for partition in range(topic.num_partitions)
    }
    assigned = Counter(key for member in request.members for key in member.partitions.partitions)
    known = {member.member_id for member in prepared.members}
    listed = Counter(member.member_id for member in request.members)
    if not listed.keys() <= known or max(listed.values(), default=0) > 1:
        raise _invalid("It names members that the group does not have, or one of them twice.")
    if max(assigned.values(), default=0) > 1:
        raise _invalid("It assigns a partition more than once.")
    if assigned.keys() != expected:
        raise _invalid("It does not assign all partitions, or some that are not subscribed.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(CoordinatorErrorCode.INVALID_ASSIGNMENT, message)
