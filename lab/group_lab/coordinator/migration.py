"""Conversion of a group between the two protocols while its members stay.

A classic group becomes a consumer group when a member of the consumer protocol joins: the
generation is the group epoch, and what the leader assigned is both current and target assignment. A
consumer group becomes a classic one when no member of the consumer protocol is left: it has the
target as its assignment, and rebalances. Groups without members become what the next member needs.

Source: KIP-848, "Supporting Online Consumer Group Upgrade" and "Consumer Group Migration";
GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup, validateOnlineUpgrade,
validateOnlineDowngradeWithFencedMembers, validateOnlineDowngradeWithReplacedMember;
ConsumerGroup.fromClassicGroup; ClassicGroup.fromConsumerGroup; kafka_protocol.md 2.9.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from group_lab.assignors.embedded import encode_assignment
from group_lab.coordinator import records as r
from group_lab.coordinator import subscriptions
from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    metadata_record,
)
from group_lab.coordinator.classic.messages import JoinGroupResponse, SyncGroupResponse
from group_lab.coordinator.classic.rebalance import prepare
from group_lab.coordinator.effects import (
    Answer,
    CoordinatorErrorCode,
    Outcome,
    R,
    RefusedError,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import (
    ClassicMetadata,
    ClientAssignor,
    GroupMember,
    ReconciliationState,
)
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.target_assignment import timeline_order
from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    NEWEST_EMBEDDED_VERSION,
    EmbeddedAssignment,
    decode_assignment,
    decode_subscription,
)
from spark_groups.types import Assignment, TopicIdPartition, TopicPartition
from spark_groups.values import dataclass

KIP_EMBEDDED_VERSION: Final = 3
"""The embedded version that the KIP requires of members that migrate."""
UNKNOWN_VERSION: Final = -1
"""The KIP's version of metadata that the coordinator cannot interpret."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The consumer group that a member of the consumer protocol joins.

    Args:
        group: The consumer group that the member joins; unchanged if `refusal` is set.
        records: Those of the conversion.
        timers: The session timeouts of its classic members.
        answers: Those to parked requests; they are sent even if the join is refused.
        classic: The classic group after its parked requests were answered; None if there was
            none, or it was empty.
        refusal: Why the members cannot be converted.
    """

    group: ConsumerGroup
    records: tuple[r.Record, ...] = ()
    timers: tuple[Timer, ...] = ()
    answers: tuple[Answer, ...] = ()
    classic: ClassicGroup | None = None
    refusal: RefusedError | None = None


def upgraded(group: ConsumerGroup, profile: Profile, context: RequestContext) -> Upgrade:
    """Return the consumer group that a heartbeat with member epoch 0 joins.

    Raises:
        RefusedError: A classic group cannot be upgraded; GROUP_ID_NOT_FOUND, in the KIP
            INVALID_REQUEST.
    """
    if group.classic is None:
        return Upgrade(group)
    tombstone = r.Record(r.ClassicGroupMetadataKey(group.group_id), None)
    if group.is_empty:
        return Upgrade(_without_classic(group), (tombstone,))
    _check_upgrade(group.classic, profile, context)
    draft = Draft(group.classic, context)
    _answer_all(draft)
    try:
        members = _converted(group.classic, profile, context)
    except RefusedError as refusal:
        answers = tuple(draft.answers)
        return Upgrade(group, answers=answers, classic=draft.group, refusal=refusal)
    records = (tombstone, *_records(group.classic, members, profile, context))
    converted = _without_classic(group)
    for record in records:
        converted.apply(record)
    # The request continues with the group that Kafka wrote the records from: filled in the order of
    # the classic group, with each member once. The records fill the group of the next request.
    converted.members = {each.member_id: converted.members[each.member_id] for each in members}
    converted.room = len(members)
    timers = tuple(classic_session_timer(group.group_id, member, context) for member in members)
    return Upgrade(converted, records, timers, tuple(draft.answers), draft.group)


def classic_session_timer(group_id: str, member: GroupMember, context: RequestContext) -> Timer:
    """Return the session timer of a classic member, with its own session timeout."""
    assert member.classic is not None
    return Timer(
        TimerKey(TimerKind.SESSION, group_id, member.member_id),
        context.now + member.classic.session_timeout_ms / 1000,
    )


def downgrades_without(
    group: ConsumerGroup, leaving: Collection[str], context: RequestContext
) -> bool:
    """Return whether a consumer group becomes a classic one when some members are gone.

    Args:
        leaving: Their member ids.
    """
    remaining = [member for key, member in group.members.items() if key not in leaving]
    return bool(remaining) and _may_downgrade(remaining, len(remaining), context)


def downgrades_for(
    group: ConsumerGroup, replaced: GroupMember | None, context: RequestContext
) -> bool:
    """Return whether a consumer group becomes a classic one when a classic member joins.

    Args:
        replaced: The static member whose place it takes; None without one.
    """
    if replaced is None or replaced.classic:
        return False
    others = [member for member in group.members.values() if member.member_id != replaced.member_id]
    return _may_downgrade(others, len(group.members), context)


def downgraded(
    group: ConsumerGroup,
    leaving: Collection[str],
    context: RequestContext,
    response: R,
    *,
    joining: GroupMember | None = None,
    records: tuple[r.Record, ...] = (),
    rebalances: bool = True,
) -> Outcome[R]:
    """Convert a consumer group to a classic one.

    Args:
        leaving: The member ids that are gone, among them that of a replaced static member.
        joining: The classic member that takes the place of a static one.
        records: Those of the join, before the conversion.
        rebalances: Whether the members must join again.
    """
    draft = Draft(_classic_group(group, leaving, joining, context), context)
    assignments = {each.member_id: each.assignment for each in draft.group.members.values()}
    record = metadata_record(draft.group, assignments)
    for member in draft.group.ordered:
        draft.schedule_session(member.member_id)
    if rebalances:
        prepare(draft)
    written = _copy(group)
    for each in records:
        written.apply(each)
    # No classic member computes a target for others.
    stopped = [replace(context.computing, at=None)] if context.computing else []
    return Outcome(
        response,
        (*records, *consumer_tombstones(written), record),
        timers=(*draft.timers, *stopped),
        classic=draft.group,
    )


def consumer_tombstones(group: ConsumerGroup) -> tuple[r.Record, ...]:
    """Return the tombstones of a consumer group, whose offsets stay."""
    return tuple(each for each in group.tombstones() if not isinstance(each.key, r.OffsetCommitKey))


def client_assignors(metadata: ClassicMetadata) -> tuple[ClientAssignor, ...]:
    """Return the protocols of a classic member as client-side assignors, as the KIP converts them.

    Raises:
        ProtocolError: The metadata is malformed.
    """
    return tuple(
        ClientAssignor(
            supported_protocol.name,
            minimum_version=UNKNOWN_VERSION,
            maximum_version=UNKNOWN_VERSION,
            metadata_version=UNKNOWN_VERSION,
            metadata=decode_subscription(supported_protocol.metadata).user_data or b"",
        )
        for supported_protocol in metadata.supported_protocols
    )


def embedded_assignment(
    assignment: Assignment,
    subscription: bytes,
    context: RequestContext,
    user_data: bytes | None = None,
) -> bytes:
    """Return an assignment as a classic member reads it, in the version of its subscription.

    Partitions of topics that no longer exist are left out.
    """
    names = {each.topic_id: each.name for each in context.topics.by_name.values()}
    partitions = frozenset(
        TopicPartition(names[each.topic_id], each.partition)
        for each in assignment.partitions
        if each.topic_id in names
    )
    version = int.from_bytes(subscription[:2], "big")
    return encode_assignment(
        EmbeddedAssignment(
            partitions=partitions,
            user_data=user_data,
            version=min(version, NEWEST_EMBEDDED_VERSION),
        )
    )


def _check_upgrade(classic: ClassicGroup, profile: Profile, context: RequestContext) -> None:
    broker = context.settings.broker
    if not broker.migration_policy.upgrades:
        reason = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > broker.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _refused(classic, reason + ".", profile)


def _refused(classic: ClassicGroup, reason: str, profile: Profile) -> RefusedError:
    invalid = profile.refused_upgrade_is_invalid
    return RefusedError(
        ErrorCode.INVALID_REQUEST if invalid else ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


def _answer_all(draft: Draft) -> None:
    """Answer all parked requests: their members join again, for the rebalance of the upgrade."""
    code = CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    for each in draft.group.ordered:
        response = JoinGroupResponse(error_code=code, member_id=each.member_id)
        draft.answer(each.member_id, response)
    for each in draft.group.ordered:
        draft.answer(each.member_id, SyncGroupResponse(error_code=code))


def _converted(
    classic: ClassicGroup, profile: Profile, context: RequestContext
) -> tuple[GroupMember, ...]:
    """Return the members of a classic group as members of a consumer group.

    Raises:
        RefusedError: The metadata is malformed or not supported, a custom assignor has added to an
            assignment what only it can read, or no protocol is selected yet.
    """
    try:
        return tuple(_converted_member(classic, each, profile, context) for each in classic.ordered)
    except ProtocolError as error:
        reason = "the embedded consumer protocol is malformed."
        raise _refused(classic, reason, profile) from error


def _converted_member(
    classic: ClassicGroup, member: ClassicMember, profile: Profile, context: RequestContext
) -> GroupMember:
    assignment = decode_assignment(member.assignment)
    if assignment.user_data and not profile.checks_embedded_metadata:
        raise _refused(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch"
            " to a default assignor before re-attempting the upgrade.",
            profile,
        )
    if classic.protocol_name not in {protocol.name for protocol in member.protocols}:
        # Before the first generation no protocol is selected, and Kafka throws.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    embedded = decode_subscription(member.metadata(classic.protocol_name))
    if profile.checks_embedded_metadata and embedded.version < KIP_EMBEDDED_VERSION:
        reason = f"version {embedded.version} of the embedded protocol is not supported."
        raise _refused(classic, reason, profile)
    metadata = ClassicMetadata(member.session_timeout_ms, member.protocols)
    topics = context.topics.by_name
    generation_id = classic.generation_id
    return GroupMember(
        member_id=member.member_id,
        member_epoch=generation_id,
        previous_member_epoch=generation_id,
        state=ReconciliationState.STABLE,
        instance_id=member.instance_id,
        rack_id=embedded.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(embedded.topics),
        client_assignors=client_assignors(metadata) if profile.checks_embedded_metadata else (),
        assigned={
            TopicIdPartition(topics[each.topic].topic_id, each.partition): generation_id
            for each in sorted(assignment.partitions)
            if each.topic in topics
        },
        classic=metadata,
    )


def _records(
    classic: ClassicGroup,
    members: tuple[GroupMember, ...],
    profile: Profile,
    context: RequestContext,
) -> tuple[r.Record, ...]:
    """Return the records of a converted group (ConsumerGroup.createConsumerGroupRecords)."""
    group_id, epoch = classic.group_id, classic.generation_id
    by_id = {member.member_id: member for member in members}
    ordered = [by_id[each] for each in timeline_order(list(by_id), len(by_id))]
    names = subscriptions.subscribed_names(members, {})
    metadata_hash, listed = 0, []
    if profile.hashes_metadata:
        metadata_hash = subscriptions.metadata_hash(names, context.topics)
    elif profile.upgrade_keeps_epoch:
        topics = subscriptions.partition_metadata(names, context.topics)
        listed.append(r.Record(r.PartitionMetadataKey(group_id), topics))
    targets = (
        r.Record(r.TargetMemberKey(group_id, each.member_id), r.TargetMemberValue(each.assignment))
        for each in ordered
    )
    return (
        *(r.member_metadata(group_id, each) for each in ordered),
        *listed,
        r.Record(r.GroupMetadataKey(group_id), r.GroupMetadataValue(epoch, metadata_hash)),
        *targets,
        r.Record(r.TargetMetadataKey(group_id), r.TargetMetadataValue(epoch)),
        *(r.current_assignment(group_id, each) for each in ordered),
    )


def _may_downgrade(classic: Collection[GroupMember], size: int, context: RequestContext) -> bool:
    broker = context.settings.broker
    return (
        all(each.classic for each in classic)
        and broker.migration_policy.downgrades
        and size <= broker.classic_max_size
    )


def _classic_group(
    group: ConsumerGroup,
    leaving: Collection[str],
    joining: GroupMember | None,
    context: RequestContext,
) -> ClassicGroup:
    """Return the classic group in the generation of the group epoch, with the target assigned."""
    classic = ClassicGroup(
        group_id=group.group_id,
        state=ClassicState.STABLE,
        state_since_s=context.now,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation_id=group.group_epoch,
    )
    kept = timeline_order(list(group.members), group.room)
    members = [group.members[each] for each in kept if each not in leaving]
    for each in (*members, joining) if joining else members:
        classic = classic.with_member(_classic_member(each))
    classic = replace(classic, protocol_name=classic.selected_protocol()).with_topics()
    for member in classic.members.values():
        target_id = member.member_id
        if joining and joining.member_id == target_id and joining.instance_id is not None:
            target_id = group.instances.get(joining.instance_id, target_id)
        target = group.targets.get(target_id, r.TargetMemberValue())
        subscription = member.metadata(classic.protocol_name or "")
        assigned = embedded_assignment(
            target.partitions, subscription, context, target.metadata or None
        )
        classic = classic.with_member(replace(member, assignment=assigned))
    return classic


def _classic_member(member: GroupMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.supported_protocols,
    )


def _copy(group: ConsumerGroup) -> ConsumerGroup:
    copy = ConsumerGroup(group.group_id, group.first_epoch)
    for each in group.records():
        copy.apply(each)
    return copy


def _without_classic(group: ConsumerGroup) -> ConsumerGroup:
    copy = _copy(group)
    copy.apply(r.Record(r.ClassicGroupMetadataKey(group.group_id), None))
    return copy
