"""Committed offsets: commit, fetch, deletion and expiry.

Requests have topic ids. Before v10 they mean the topic by name: the caller passes the id that has
the name now, or an id of no topic. The KIP has the rule of 4.0 to 4.2: the epoch must be the
member's.

Source: OffsetMetadataManager; validateOffsetCommit of ConsumerGroup and ClassicGroup; KafkaApis for
answers of the broker before the coordinator; kafka_protocol.md 2.7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import ClassicGroup, ClassicState
from group_lab.coordinator.design_0_9.group import DesignGroup
from group_lab.coordinator.effects import CoordinatorErrorCode, Outcome, RequestContext, Timer
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.messages import OffsetDeleteRequest, OffsetDeleteResponse
from group_lab.coordinator.profile import OffsetFencing, Profile
from group_lab.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record
from group_lab.coordinator.subscriptions import subscribed_names
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    NO_OFFSET,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from spark_groups.types import TopicId, TopicIdPartition

_MEMBER_EPOCH_VERSION: Final = 9
"""The version from which OffsetCommit has a member epoch."""
_TOPIC_ID_VERSION: Final = 10
"""The version from which OffsetCommit and OffsetFetch have topic ids."""
_NONE_COMMITTED: Final = OffsetAndMetadata(NO_OFFSET)


def commit(
    group: ConsumerGroup, request: OffsetCommitRequest, profile: Profile, context: RequestContext
) -> Outcome[OffsetCommitResponse]:
    """Commit offsets; if the member may not commit one partition, all are refused."""
    errors = dict.fromkeys(request.offsets, int(ErrorCode.NONE))
    names: dict[TopicIdPartition, str] = {}
    topics = _by_id(context.topics)
    for key in request.offsets:
        topic = topics.get(key.topic_id)
        if topic is None:
            errors[key] = _unknown_topic(profile, context)
        elif not 0 <= key.partition < topic.partition_count:
            errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            names[key] = topic.name
    kept = {
        key: name
        for key, name in names.items()
        # Kafka compares the limit in bytes with the number of characters.
        if len(request.offsets[key].metadata) <= context.settings.broker.offset_metadata_max_bytes
    }
    if profile.assigns_in_join:
        error = (group.design or DesignGroup(group_id=group.group_id)).commit_error(request)
    else:
        error = _commit_error(group, request, kept, profile, context.api_version)
    if error:
        errors |= dict.fromkeys(names, error)
        return Outcome(OffsetCommitResponse(errors=errors))
    errors |= dict.fromkeys(names.keys() - kept.keys(), ErrorCode.OFFSET_METADATA_TOO_LARGE)
    records = tuple(
        Record(
            OffsetCommitKey(group.group_id, name, key.partition),
            _committed(key, request.offsets[key], profile, context.now),
        )
        for key, name in kept.items()
    )
    timers = _session_after_commit(group, request.member_id, context) if names else ()
    return Outcome(OffsetCommitResponse(errors=errors), records, timers, makes_group=bool(names))


def fetch(
    group: ConsumerGroup, request: OffsetFetchRequest, profile: Profile, context: RequestContext
) -> Outcome[OffsetFetchResponse]:
    """Fetch committed offsets; a member must send its current epoch."""
    if error := _fetch_error(group, request):
        return Outcome(OffsetFetchResponse(error_code=error))
    names_topics = _names_topics(profile, context)
    topics = _by_id(context.topics)
    answers: dict[TopicIdPartition, OffsetAndMetadata | PartitionError] = {}
    for key in sorted(request.partitions):
        topic = topics.get(key.topic_id)
        if topic is None and not names_topics:
            answers[key] = PartitionError(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        value = group.offsets.get((topic.name, key.partition)) if topic else None
        if value is None or value.topic_id not in (None, key.topic_id):
            answers[key] = _NONE_COMMITTED
        else:
            answers[key] = OffsetAndMetadata(
                value.committed_offset, value.metadata, value.leader_epoch
            )
    return Outcome(OffsetFetchResponse(answers=answers))


def delete(
    group: ConsumerGroup, request: OffsetDeleteRequest, _profile: Profile, context: RequestContext
) -> Outcome[OffsetDeleteResponse]:
    """Delete offsets of topics that the group does not subscribe to (OffsetDelete)."""
    errors = dict.fromkeys(sorted(request.partitions), int(ErrorCode.NONE))
    for key in errors:
        topic = context.topics.by_name.get(key.topic)
        if topic is None or not 0 <= key.partition < topic.partition_count:
            errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = [key for key, error in errors.items() if not error]
    if not group.group_id:
        return Outcome(OffsetDeleteResponse(error_code=CoordinatorErrorCode.INVALID_GROUP_ID))
    if not group.exists:
        return Outcome(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    classic = group.classic
    if classic and not group.is_empty and not classic.uses_consumer_protocol:
        return Outcome(OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    is_subscribed = _subscription(group)
    for key in known:
        if is_subscribed(key.topic):
            errors[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    expired = ((key.topic, key.partition) for key, error in errors.items() if not error)
    return Outcome(OffsetDeleteResponse(errors=errors), _tombstones(group, expired))


def expire(group: ConsumerGroup, _profile: Profile, context: RequestContext) -> Outcome[None]:
    """Delete old offsets, and the group if neither offsets nor members remain.

    Offsets of subscribed topics do not expire. Retention counts from the commit; in a classic group
    that has had members, it counts from the time at which the last one left, and offsets expire
    only while it is empty or stable (offsetExpirationCondition).
    """
    classic = group.classic
    empty_since_s = None
    if classic and classic.protocol_type is not None:
        if group.is_empty:
            empty_since_s = classic.state_since_s
        elif group.offsets and not classic.may_expire_offsets:
            return Outcome(None)
    retention_s = context.settings.broker.offsets_retention_s
    is_subscribed = _subscription(group)
    old = [
        (topic, partition)
        for (topic, partition), value in group.offsets.items()
        if not is_subscribed(topic)
        and context.now - (value.commit_timestamp_s if empty_since_s is None else empty_since_s)
        >= retention_s
    ]
    if len(old) == len(group.offsets) and group.is_empty:
        return Outcome(None, group.tombstones())
    return Outcome(None, _tombstones(group, old))


def _subscription(group: ConsumerGroup) -> Callable[[str], bool]:
    """Return what tells whether the group subscribes to a topic."""
    if group.design:
        return group.design.is_subscribed_to
    if group.classic:
        return group.classic.is_subscribed_to
    return subscribed_names(group.members.values(), group.regexes).__contains__


def forget(group: ConsumerGroup, topics: Collection[str]) -> tuple[Record, ...]:
    """Return tombstones for the offsets of deleted topics (onPartitionsDeleted)."""
    return _tombstones(group, (key for key in group.offsets if key[0] in topics))


def _commit_error(
    group: ConsumerGroup,
    request: OffsetCommitRequest,
    names: Mapping[TopicIdPartition, str],
    profile: Profile,
    api_version: int,
) -> int:
    """Return the error of the whole commit."""
    has_epochs = api_version >= _MEMBER_EPOCH_VERSION
    if not group.exists and request.member_epoch >= 0:
        return ErrorCode.GROUP_ID_NOT_FOUND if has_epochs else ErrorCode.ILLEGAL_GENERATION
    if group.exists and not group.is_consumer_group:
        classic = group.classic or ClassicGroup(group_id=group.group_id)
        return _classic_commit_error(classic, request)
    if request.member_epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not has_epochs and not member.classic:
        return ErrorCode.UNSUPPORTED_VERSION
    epoch, relaxed = request.member_epoch, profile.offset_fencing is OffsetFencing.ASSIGNMENT_EPOCH
    is_valid = epoch == member.member_epoch or (
        relaxed and epoch < member.member_epoch and _had_all(member, names, epoch)
    )
    return ErrorCode.NONE if is_valid else _stale(member)


def _classic_commit_error(group: ClassicGroup, request: OffsetCommitRequest) -> int:
    """Return the error of a commit; its member epoch is the generation id."""
    generation_id, member_id = request.member_epoch, request.member_id
    if generation_id < 0 and group.state is ClassicState.EMPTY:
        # An operator, or a consumer that assigns itself.
        return ErrorCode.NONE
    if generation_id < 0 and not member_id and request.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if error := group.member_error(member_id, request.instance_id):
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicState.COMPLETING_REBALANCE:
        return CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _session_after_commit(
    group: ConsumerGroup, member_id: str, context: RequestContext
) -> tuple[Timer, ...]:
    """Return the session timer that an accepted commit of a classic member starts again."""
    classic = group.classic
    if classic is None or member_id not in classic.members:
        return ()
    draft = Draft(classic, context)
    draft.schedule_session(member_id)
    return tuple(draft.timers)


def _stale(member: GroupMember) -> int:
    """Return the error for an epoch that is not the member's; a classic one has a generation."""
    return ErrorCode.ILLEGAL_GENERATION if member.classic else ErrorCode.STALE_MEMBER_EPOCH


def _had_all(member: GroupMember, keys: Iterable[TopicIdPartition], member_epoch: int) -> bool:
    """Return whether a member has held all partitions since an epoch (KIP-1251)."""
    for key in keys:
        since = member.assigned.get(key, member.pending_revocation.get(key))
        if since is None or member_epoch < since:
            return False
    return True


def _fetch_error(group: ConsumerGroup, request: OffsetFetchRequest) -> int:
    """Return the error of a fetch; a group without members checks nothing."""
    if not group.is_consumer_group or (request.member_id is None and request.member_epoch < 0):
        return ErrorCode.NONE
    if request.member_id is None:
        # An epoch without a member id: the broker looks up null in a map, which throws.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.member_epoch != member.member_epoch:
        return _stale(member)
    return ErrorCode.NONE


def _committed(
    key: TopicIdPartition, offset: OffsetAndMetadata, profile: Profile, now: float
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset.committed_offset,
        offset.leader_epoch,
        offset.metadata,
        commit_timestamp_s=now,
        topic_id=key.topic_id if profile.commits_topic_ids else None,
    )


def _tombstones(group: ConsumerGroup, partitions: Iterable[tuple[str, int]]) -> tuple[Record, ...]:
    return tuple(
        Record(OffsetCommitKey(group.group_id, *key), None)
        for key in partitions
        if key in group.offsets
    )


def _names_topics(profile: Profile, context: RequestContext) -> bool:
    return not profile.commits_topic_ids or context.api_version < _TOPIC_ID_VERSION


def _unknown_topic(profile: Profile, context: RequestContext) -> int:
    if _names_topics(profile, context):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.UNKNOWN_TOPIC_ID


def _by_id(topics: TopicsImage) -> dict[TopicId, TopicImage]:
    return {each.topic_id: each for each in topics.by_name.values()}
