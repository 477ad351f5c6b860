"""Committed offsets of a group without members are set anew: read, planned, and committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_groups.errors import ErrorCode, GroupNotFoundError
from spark_groups.observation.observe import describe_any_group
from spark_groups.offsets.starting import (
    commit_metadata,
    committed_topics,
    known_counts,
)
from spark_groups.ops.reset_plan import (
    KnownOffsets,
    ResetKind,
    ResetRow,
    ResetTarget,
    ResetView,
    plan_offset,
    refusal_of,
)
from spark_groups.ops.topic_partitions import partitions_of
from spark_groups.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetAndMetadata,
    TopicMetadata,
)
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import refuse
from spark_groups.wire.group_admin import commit_outside

Offsets = Mapping[TopicIdPartition, int]
Committed = Mapping[TopicIdPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The partitions that are meant.

    Args:
        there: Those that exist, with what they are called.
        missing: Those that do not; partition -1 stands for a whole topic.
        partition_counts: How many partitions each topic has now.
    """

    there: Mapping[TopicIdPartition, TopicPartition]
    missing: tuple[TopicPartition, ...] = ()
    partition_counts: Mapping[TopicId, int] = field(default_factory=dict)


def reset_offsets(
    cluster: Cluster,
    group_id: str,
    target: ResetTarget,
    topics: Mapping[str, frozenset[int] | None] | None,
    *,
    execute: bool,
) -> ResetView:
    """Plan new offsets for a group, and commit them if that is wanted and can be done.

    Args:
        group_id: The group; one that does not exist yet is made by the first commit.
        topics: The topics with the partitions that are meant, None for all of a topic; None: every
            partition for which the group, or the one whose offsets are taken over, has committed.

    Raises:
        RequestError: Not all answers came in time.
        ProtocolError: A broker refused, or its answer cannot be read.
    """
    state, members = _group(cluster, group_id)
    committed = _committed(cluster, group_id)
    takes_over = target.kind is ResetKind.FROM_GROUP
    others = _committed(cluster, target.group_id) if takes_over else {}
    scope = _scope(cluster, topics, others if takes_over else committed)
    known = _known(cluster, scope, target, committed, others)
    rows = {key: _row(target, name, known[key]) for key, name in scope.there.items()}
    view = ResetView(
        group_id=group_id,
        group_state=state,
        rows=_sorted(*rows.values(), *(_missing_row(each) for each in scope.missing)),
    )
    view = replace(view, refusal=refusal_of(group_id, state, members, view.rows))
    if view.refusal or not execute:
        return view
    new_offsets = {key: row.new_offset for key, row in rows.items() if row.new_offset is not None}
    counts = counts_to_keep(committed, others, new_offsets, scope.partition_counts)
    metadata = {each: commit_metadata(count, is_reset=True) for each, count in counts.items()}
    done = commit_outside(cluster, group_id, new_offsets, metadata)
    refuse(done.error_code, f"OffsetCommit of {group_id!r}")
    answered = (_with_answer(row, done.errors.get(key, 0)) for key, row in rows.items())
    return replace(view, rows=_sorted(*answered), is_executed=True)


def counts_to_keep(
    committed: Committed,
    taken_over: Committed,
    reset: Collection[TopicIdPartition],
    partition_counts: Mapping[TopicId, int],
) -> dict[TopicId, int]:
    """Return how many partitions topics had when the group began to read them, 0 if unknown.

    It is kept beside the offsets: it tells which partitions were added later.
    """
    known = [known_counts(each) for each in (committed, taken_over)]
    begun = committed_topics(committed) | committed_topics(taken_over)
    with_offset = Counter(key.topic_id for key in {*committed, *reset})
    counts: dict[TopicId, int] = {}
    for topic_id, partition_count in partition_counts.items():
        if found := [each[topic_id] for each in known if topic_id in each]:
            counts[topic_id] = min(found)
        elif topic_id not in begun or with_offset[topic_id] >= partition_count:
            counts[topic_id] = partition_count
        else:
            # Some have no offset, and nobody can say which of them were there at first.
            counts[topic_id] = 0
    return counts


def _group(cluster: Cluster, group_id: str) -> tuple[str, tuple[str, ...]]:
    """Return a group's state and what its members are called; one that is not there is dead."""
    try:
        _, described = describe_any_group(cluster, group_id)
    except GroupNotFoundError:
        return "Dead", ()
    named = (f"{each.client_id} {each.member_id}".strip() for each in described.members)
    return described.group_state, tuple(sorted(named))


def _committed(cluster: Cluster, group_id: str) -> Committed:
    fetched = cluster.fetch_all_offsets(group_id)
    refuse(fetched.error_code, f"OffsetFetch of {group_id!r}")
    return {
        key: each for key, each in fetched.offsets.items() if each.committed_offset != NO_OFFSET
    }


def _scope(
    cluster: Cluster, topics: Mapping[str, frozenset[int] | None] | None, committed: Committed
) -> _Scope:
    if topics is None:
        if not committed:
            return _Scope({})
        ids = frozenset(each.topic_id for each in committed)
        found = cluster.metadata(MetadataRequest(topic_ids=ids)).topics
        names = {each.topic_id: each.name for each in found}
        return _Scope(
            {
                each: TopicPartition(names[each.topic_id], each.partition)
                for each in committed
                if each.topic_id in names
            },
            partition_counts=_counts(found),
        )
    found = cluster.metadata(MetadataRequest(topic_names=frozenset(topics))).topics
    there, missing = partitions_of(topics, found)
    by_name = {each.name: each.topic_id for each in found}
    keys = {TopicIdPartition(by_name[each.topic], each.partition): each for each in there}
    return _Scope(keys, missing, _counts(found))


def _counts(topics: Iterable[TopicMetadata]) -> dict[TopicId, int]:
    return {each.topic_id: each.partition_count for each in topics}


def _known(
    cluster: Cluster, scope: _Scope, target: ResetTarget, committed: Committed, others: Committed
) -> dict[TopicIdPartition, KnownOffsets]:
    partitions = frozenset(scope.there)
    if not partitions:
        return {}

    def at(timestamp_ms: int) -> Offsets:
        request = ListOffsetsRequest(partitions=partitions, timestamp_ms=timestamp_ms)
        return cluster.list_offsets(request).offsets

    starts, ends = at(EARLIEST_TIMESTAMP), at(LATEST_TIMESTAMP)
    at_time = at(target.number) if target.is_at_time else {}
    return {
        each: KnownOffsets(
            committed_offset=_offset(committed, each),
            log_start_offset=starts.get(each),
            log_end_offset=ends.get(each),
            at_timestamp=at_time.get(each),
            other_committed_offset=_offset(others, each),
            file_offset=target.offsets.get(scope.there[each]),
        )
        for each in partitions
    }


def _offset(committed: Committed, key: TopicIdPartition) -> int | None:
    return committed[key].committed_offset if key in committed else None


def _row(target: ResetTarget, name: TopicPartition, known: KnownOffsets) -> ResetRow:
    new_offset, remark = plan_offset(target, str(name), known)
    return ResetRow(
        topic=name.topic,
        partition=name.partition,
        committed_offset=known.committed_offset,
        new_offset=new_offset,
        remark=remark,
        is_passed_over=(
            target.kind is ResetKind.FROM_GROUP and known.other_committed_offset is None
        ),
    )


def _missing_row(name: TopicPartition) -> ResetRow:
    if name.partition < 0:
        return ResetRow(topic=name.topic, partition=None, remark="there is no such topic")
    remark = "there is no such partition"
    return ResetRow(topic=name.topic, partition=name.partition, remark=remark)


def _with_answer(row: ResetRow, code: int) -> ResetRow:
    return replace(row, error=ErrorCode.name_of(code)) if code else row


def _sorted(*rows: ResetRow) -> tuple[ResetRow, ...]:
    return tuple(sorted(rows, key=lambda row: (row.topic, row.partition or 0)))
