"""`spark-groups reset-offsets`: set the committed offsets of a group without members."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.checkpoint_files import opened_checkpoint
from spark_groups.cli.checkpoint_log import ChosenOffsets, positions_of, read_checkpoint
from spark_groups.cli.connecting import Brokers, GroupArgument, JsonFlag, connects, usage_errors
from spark_groups.cli.output import ALARM_STYLE, UNKNOWN, Column, plain, show, table_of
from spark_groups.cli.reset_plan import (
    CheckpointBatch,
    KnownOffsets,
    ResetKind,
    ResetRow,
    ResetTarget,
    ResetView,
    parse_datetime,
    parse_duration,
    parse_offsets,
    plan_offset,
    refusal_of,
)
from spark_groups.cli.topic_partitions import TOPIC_OPTION, parse_topics, partitions_of
from spark_groups.errors import ErrorCode, GroupNotFoundError, OptionsError, printable
from spark_groups.group.ledger.commit_metadata import (
    commit_metadata,
    committed_topics,
    known_counts,
)
from spark_groups.group.member.messages import (
    NO_OFFSET,
    Fetched,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetAndMetadata,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.group.member.near_names import hint
from spark_groups.observation.observe import describe_any_group, why_unknown
from spark_groups.text_files import decoded
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicId,
    TopicIdPartition,
    TopicPartition,
)
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import refuse
from spark_groups.wire.group_admin import commit_outside

Offsets = Mapping[TopicIdPartition, int]
Committed = Mapping[TopicIdPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The requested partitions.

    Args:
        there: The existing partitions, with their names.
        missing: The missing partitions; partition -1 stands for a whole topic.
        topics: The existing topics.
        near: By the name of a missing topic: a topic with a similar name.
    """

    there: Mapping[TopicIdPartition, TopicPartition]
    missing: tuple[TopicPartition, ...] = ()
    topics: tuple[TopicMetadata, ...] = ()
    near: Mapping[str, str] = field(default_factory=dict)


def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    target: ResetTarget,
    topics: Mapping[str, frozenset[int] | None] | None,
    *,
    execute: bool,
) -> ResetView:
    """Plan new offsets for a group, and commit them if `execute` and the plan is valid.

    Args:
        group_id: The group; the commit creates it if it does not exist.
        topics: Partitions by topic, None for all of a topic. None: every partition with a committed
            offset, of the group or of the group or table to copy from.

    Raises:
        RequestError: The brokers did not answer all requests in time.
        ProtocolError: A broker returned an error, or a response cannot be decoded.
    """
    state, members = _group(cluster, group_id)
    committed, failed = _divided(cluster.fetch_all_offsets(group_id))
    others, others_failed = _divided(_others(cluster, group_id, target))
    mine = {*others, *others_failed} if target.takes_over else {*committed, *failed}
    scope = _scope(cluster, topics, mine)
    known, unlisted = _known(cluster, scope, target, committed, others)
    unknown = _unknown(
        scope,
        {
            f"committed offset of group {group_id!r}": failed,
            f"committed offset of group {target.group_id!r}": others_failed,
            "log start or end": unlisted,
        },
    )
    rows = {key: _row(target, name, known[key]) for key, name in scope.there.items()}
    view = ResetView(
        group_id=group_id,
        group_state=state,
        rows=_sorted(*rows.values(), *_missing_rows(scope, target)),
        copied_group_id=target.group_id or None,
        checkpoint=_batch_of(target),
    )
    view = replace(view, refusal=refusal_of(group_id, state, members, view.rows, unknown))
    if view.refusal or not execute:
        return view
    new_offsets = {key: row.new_offset for key, row in rows.items() if row.new_offset is not None}
    partition_counts = {topic.topic_id: topic.partition_count for topic in scope.topics}
    counts = counts_to_keep(committed, others, new_offsets, partition_counts)
    metadata = {each: commit_metadata(count, is_reset=True) for each, count in counts.items()}
    done = commit_outside(cluster, group_id, new_offsets, metadata)
    refuse(done.error_code, f"OffsetCommit of {group_id!r}")
    codes = {key: done.errors[key] for key in new_offsets}
    answered = (
        replace(row, error=ErrorCode.name_of(codes[key])) if codes.get(key) else row
        for key, row in rows.items()
    )
    return replace(view, rows=_sorted(*answered), is_executed=True)


def counts_to_keep(
    committed: Committed,
    taken_over: Committed,
    reset: Collection[TopicIdPartition],
    partition_counts: Mapping[TopicId, int],
) -> dict[TopicId, int]:
    """Return how many partitions each topic had when the group started; 0: unknown.

    Committed offsets carry this number, to recognize partitions that were added later.
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
            # Partitions without an offset may be older than the group, or newer: unknown.
            counts[topic_id] = 0
    return counts


def _group(cluster: Cluster, group_id: str) -> tuple[str, tuple[str, ...]]:
    """Return the state and the names of the members; Dead if the group does not exist."""
    try:
        _, described = describe_any_group(cluster, group_id)
    except GroupNotFoundError:
        return "Dead", ()
    named = (f"{member.client_id} {member.member_id}".strip() for member in described.members)
    return described.group_state, tuple(sorted(named))


def _divided(fetched: Fetched) -> tuple[Committed, Mapping[TopicIdPartition, int]]:
    """Return the committed offsets, and Kafka's error code of each partition with an error."""
    found, failed = found_and_failed(fetched)
    return {k: each for k, each in found.items() if each.committed_offset != NO_OFFSET}, failed


def _unknown(scope: _Scope, failed: Mapping[str, Mapping[TopicIdPartition, int]]) -> str:
    """Return which offsets of the topics are unknown and what to do; empty if none is.

    Those of partitions that are not reset count, too: their metadata has the count to keep.

    Args:
        scope: The topics.
        failed: By kind of offset, Kafka's error code of each partition.
    """
    names = {topic.topic_id: topic.name for topic in scope.topics}
    named = {
        what: {
            TopicPartition(names[key.topic_id], key.partition): code
            for key, code in codes.items()
            if key.topic_id in names
        }
        for what, codes in failed.items()
    }
    return "; ".join(why_unknown(what, codes) for what, codes in named.items() if codes)


def _others(cluster: Cluster, group_id: str, target: ResetTarget) -> Fetched:
    """Return the offsets to copy: those of another group, of a table, or of a checkpoint."""
    if target.kind is ResetKind.FROM_GROUP:
        return cluster.fetch_all_offsets(target.group_id)
    if target.checkpoint is not None:
        return _checkpointed(cluster, target.checkpoint)
    if target.kind is ResetKind.FROM_TABLE:
        # Most resets need no library of tables.
        from spark_groups.cli import table_names  # noqa: PLC0415

        found: Mapping[TopicIdPartition, int] = table_names.next_offsets(target.place, group_id)
        return {key: OffsetAndMetadata(offset) for key, offset in found.items()}
    return {}


def _checkpointed(cluster: Cluster, chosen: ChosenOffsets) -> Committed:
    """Return the offsets of a checkpoint, as if a query had committed them.

    A partition that the checkpoint lacks was added later: it is read from its beginning.
    """
    names = frozenset(each.topic for each in chosen.positions)
    found = cluster.metadata(MetadataRequest(topic_names=names)).topics
    ids = {each.name: each.topic_id for each in found}
    return {
        TopicIdPartition(ids[name.topic], name.partition): OffsetAndMetadata(
            position.offset, commit_metadata(chosen.first_count(name.topic))
        )
        for name, position in chosen.positions.items()
        if name.topic in ids
    }


def _batch_of(target: ResetTarget) -> CheckpointBatch | None:
    chosen = target.checkpoint
    if chosen is None:
        return None
    planned = chosen.planned_offsets()
    return CheckpointBatch(
        place=chosen.place,
        batch_id=chosen.checkpoint.batch_id,
        planned_batch_id=chosen.checkpoint.planned_batch_id if planned else None,
        planned_offsets=planned,
    )


def _missing(scope: _Scope, target: ResetTarget) -> Iterable[TopicPartition]:
    """Return the requested partitions that do not exist, and those of the checkpoint."""
    positions = target.checkpoint.positions if target.checkpoint else {}
    gone = {each.topic for each in scope.missing if each.partition < 0}
    named = {each for each in positions if each.topic not in gone}
    return {*scope.missing, *(named - set(scope.there.values()))}


def _scope(
    cluster: Cluster,
    topics: Mapping[str, frozenset[int] | None] | None,
    mine: Collection[TopicIdPartition],
) -> _Scope:
    if topics is None:
        if not mine:
            return _Scope({})
        ids = frozenset(each.topic_id for each in mine)
        found = cluster.metadata(MetadataRequest(topic_ids=ids)).topics
        names = {each.topic_id: each.name for each in found}
        return _Scope(
            {
                each: TopicPartition(names[each.topic_id], each.partition)
                for each in mine
                if each.topic_id in names
            },
            topics=found,
        )
    answer = cluster.metadata(MetadataRequest(topic_names=frozenset(topics), wants_near=True))
    found = answer.topics
    there, missing = partitions_of(topics, found)
    by_name = {each.name: each.topic_id for each in found}
    keys = {TopicIdPartition(by_name[each.topic], each.partition): each for each in there}
    return _Scope(keys, missing, found, answer.near)


def _known(
    cluster: Cluster, scope: _Scope, target: ResetTarget, committed: Committed, others: Committed
) -> tuple[dict[TopicIdPartition, KnownOffsets], dict[TopicIdPartition, int]]:
    """Return the known offsets, and error codes of the partitions without all of them."""
    partitions = frozenset(scope.there)
    unlisted: dict[TopicIdPartition, int] = {}
    if not partitions:
        return {}, unlisted

    def at(timestamp_ms: int) -> Offsets:
        request = ListOffsetsRequest(partitions=partitions, timestamp_ms=timestamp_ms)
        found, failed = found_and_failed(cluster.list_offsets(request).answers)
        unlisted.update(failed)
        return {key: each.offset for key, each in found.items()}

    starts, ends = at(EARLIEST_TIMESTAMP), at(LATEST_TIMESTAMP)
    at_time = at(target.number) if target.is_at_time else {}
    known = {
        partition: KnownOffsets(
            committed_offset=_offset(committed, partition),
            log_start_offset=starts.get(partition),
            log_end_offset=ends.get(partition),
            at_timestamp=at_time.get(partition),
            other_committed_offset=_offset(others, partition),
            file_offset=target.offsets.get(scope.there[partition]),
        )
        for partition in partitions
    }
    return known, unlisted


def _offset(committed: Committed, key: TopicIdPartition) -> int | None:
    return committed[key].committed_offset if key in committed else None


def _row(target: ResetTarget, name: TopicPartition, known: KnownOffsets) -> ResetRow:
    new_offset, remark = plan_offset(target, str(name), known)
    position = target.checkpoint.positions.get(name) if target.checkpoint else None
    return ResetRow(
        topic=name.topic,
        partition=name.partition,
        committed_offset=known.committed_offset,
        new_offset=new_offset,
        remark=remark,
        is_passed_over=target.takes_over and known.other_committed_offset is None,
        source=position.source_name if position else None,
    )


def _missing_rows(scope: _Scope, target: ResetTarget) -> Iterator[ResetRow]:
    for topic, partition in _missing(scope, target):
        if partition >= 0:
            remark = "the partition does not exist"
            yield ResetRow(topic=topic, partition=partition, remark=remark)
        else:
            remark = f"the topic does not exist{hint(topic, scope.near)}"
            yield ResetRow(topic=topic, partition=None, remark=remark)


def _sorted(*rows: ResetRow) -> tuple[ResetRow, ...]:
    return tuple(sorted(rows, key=lambda row: (row.topic, row.partition or 0)))


ShiftBy = Annotated[
    int | None,
    typer.Option(metavar="OFFSETS", help="Forward by this many offsets, or back if negative."),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        metavar="YYYY-MM-DDThh:mm:ss.sss",
        help="To the first record at or after this time; in UTC, or with Z or +hh:mm.",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        metavar="PnDTnHnMnS",
        help="To the first record at or after now minus this duration: P1D, PT2H30M.",
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="To the offsets in a CSV file with lines topic,partition,offset, as --export of"
        " kafka-consumer-groups.sh writes them. The file also selects the partitions.",
        exists=True,
        dir_okay=False,
    ),
]
FromGroup = Annotated[
    str | None, typer.Option(metavar="GROUP", help="To the committed offsets of another group.")
]
FromTable = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="To the offsets that a table of write_table has: delta:PATH and other names as for"
        " `spark-groups table`.",
    ),
]
FromCheckpoint = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="To where a query with Spark's own Kafka source stands: the checkpointLocation of the"
        " stopped query, as a path or a URI (hdfs:, s3a:, ... with PySpark).",
    ),
]


@connects
def reset_offsets(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the start of each log.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each log.")] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="To the committed offset, or the end of the log if there is none."
        ),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="To this offset.", min=0)
    ] = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    from_group: FromGroup = None,
    from_table: FromTable = None,
    from_checkpoint: FromCheckpoint = None,
    topics: Annotated[list[str] | None, TOPIC_OPTION] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions with committed offsets.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Plan new offsets for a group without members, and commit them with --execute.

    The plan is always shown. It is executed for all partitions or none.

    Example: spark-groups reset-offsets flight-readers --topic flights --to-earliest --execute

    Exit code 1 if the plan cannot be executed, or any offset is not committed.
    """
    given: dict[ResetKind, int | str | Path | None] = {
        ResetKind.TO_EARLIEST: 0 if to_earliest else None,
        ResetKind.TO_LATEST: 0 if to_latest else None,
        ResetKind.TO_CURRENT: 0 if to_current else None,
        ResetKind.TO_OFFSET: to_offset,
        ResetKind.SHIFT_BY: shift_by,
        ResetKind.TO_DATETIME: to_datetime,
        ResetKind.BY_DURATION: by_duration,
        ResetKind.FROM_FILE: from_file,
        ResetKind.FROM_GROUP: from_group,
        ResetKind.FROM_TABLE: from_table,
        ResetKind.FROM_CHECKPOINT: from_checkpoint,
    }
    with usage_errors():
        target = parse_target(given, group, now_ms=time.time_ns() // 1_000_000)
        if target.kind is ResetKind.FROM_CHECKPOINT:
            target = _chosen(target, topics or (), all_topics=all_topics)
        wanted = _requested(target, topics or (), all_topics=all_topics)
    with brokers.cluster() as cluster:
        view = reset_group_offsets(cluster, group, target, wanted, execute=execute)
    show(
        view,
        render_reset,
        as_json=as_json,
        is_success=not view.refusal and (view.is_complete or not execute),
    )


def _requested(
    target: ResetTarget, topics: Sequence[str], *, all_topics: bool
) -> dict[str, frozenset[int] | None] | None:
    if target.kind is ResetKind.FROM_FILE:
        if topics or all_topics:
            raise OptionsError("--from-file selects the partitions: omit --topic and --all-topics")
        names = {each.topic for each in target.offsets}
        return {
            name: frozenset(each.partition for each in target.offsets if each.topic == name)
            for name in names
        }
    if target.checkpoint is not None:
        return parse_topics(topics or {each.topic for each in target.checkpoint.positions})
    if bool(topics) == all_topics:
        raise OptionsError("choose one of --topic and --all-topics")
    return parse_topics(topics) if topics else None


def _chosen(target: ResetTarget, topics: Sequence[str], *, all_topics: bool) -> ResetTarget:
    """Read the checkpoint, and choose partitions of it."""
    if topics and all_topics:
        raise OptionsError("choose one of --topic and --all-topics")
    with opened_checkpoint(target.place) as files:
        found = read_checkpoint(files, target.place)
    wanted = parse_topics(topics) if topics else None
    positions = positions_of(found, wanted, all_topics=all_topics)
    return replace(target, checkpoint=ChosenOffsets(target.place, found, positions))


def parse_target(
    given: dict[ResetKind, int | str | Path | None], group_id: str, *, now_ms: int
) -> ResetTarget:
    """Return the target from the one option that is given.

    Args:
        now_ms: Milliseconds since 1970.

    Raises:
        OptionsError: Not exactly one option is given, or a time or a file is invalid.
    """
    chosen = {kind: value for kind, value in given.items() if value is not None}
    if len(chosen) != 1:
        options = ", ".join(each.value for each in chosen or ResetKind)
        raise OptionsError(f"choose one of {options}")
    ((kind, value),) = chosen.items()
    if kind is ResetKind.TO_DATETIME:
        return ResetTarget(kind, parse_datetime(str(value)))
    if kind is ResetKind.BY_DURATION:
        return ResetTarget(kind, max(0, now_ms - parse_duration(str(value))))
    if isinstance(value, Path):
        return ResetTarget(kind, offsets=parse_offsets(_lines(value), group_id))
    if kind in {ResetKind.FROM_TABLE, ResetKind.FROM_CHECKPOINT}:
        return ResetTarget(kind, place=str(value))
    if isinstance(value, str):
        return ResetTarget(kind, group_id=value)
    return ResetTarget(kind, value)


def _lines(path: Path) -> list[str]:
    try:
        return decoded(path.read_bytes(), "utf-8").splitlines()
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionsError(
            f"{path} is neither UTF-8 nor UTF-16 with a byte order mark: {error}"
        ) from None


NOT_EXECUTED = "No action is performed: --execute is missing."


def render_reset(view: ResetView) -> RenderableType:
    """Return the plan in the columns of kafka-consumer-groups.sh, and its result."""
    table = table_of(
        view.rows,
        Column("GROUP", lambda _: view.group_id),
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: plain(each.partition), is_number=True),
        Column("CURRENT-OFFSET", lambda each: plain(each.committed_offset), is_number=True),
        Column("NEW-OFFSET", lambda each: plain(each.new_offset), is_number=True),
        Column("SOURCE", lambda each: each.source or UNKNOWN, is_shown=bool(view.checkpoint)),
        Column("REMARK", _remark, is_optional=True),
    )
    if view.refusal:
        return Group(table, Text(f"Error: {printable(view.refusal)}", "red"))
    lines = [Text(view.next_start)]
    if view.checkpoint and view.checkpoint.warning:
        lines.append(Text(view.checkpoint.warning, ALARM_STYLE))
    if not view.is_executed:
        lines.append(Text(NOT_EXECUTED))
    return Group(table, *lines)


def _remark(row: ResetRow) -> str:
    return "; ".join(filter(None, (row.error and f"Error: {row.error}", row.remark)))
