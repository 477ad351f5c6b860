"""`spark_groups.write_table`: writes the batches of a group to a table, each record exactly once.

The order is: staged rows, the commit of the table, Spark's commit log, the offset commit. After a
crash between any two of them, Spark runs the batch again, and the table's fence tells which part of
it the table has already. `spark_groups.fence` decides; this module carries its steps.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from spark_groups.errors import (
    OptionsError,
    Reaction,
    SchemaLookupError,
    TableChangedError,
    TableError,
    rule_for,
)
from spark_groups.fence.batch_write import (
    AskCommitted,
    AskKept,
    BatchWrite,
    CommitEntries,
    CommitRows,
    Pause,
    ReadFence,
    StageRows,
    Warn,
    Written,
)
from spark_groups.fence.beginnings import Batch, UnsavedEntries
from spark_groups.fence.compare import Skip, kept_of
from spark_groups.fence.entries import FenceKey
from spark_groups.group.member.messages import (
    UNANSWERED,
    ListOffsetsRequest,
    OffsetAndMetadata,
    PartitionError,
)
from spark_groups.observation.observe import known_offsets
from spark_groups.spark.control.batch_proof import report_done
from spark_groups.spark.control.running_query import (
    RunningQuery,
    batch_frame_id,
    loaded_stream,
    running_query,
)
from spark_groups.spark.control.served_query import (
    batch_channel,
    is_served,
    served_query,
)
from spark_groups.spark.options.option_values import Emit
from spark_groups.spark.options.packed import with_schemas
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.budget import BUDGET_SHARE
from spark_groups.spark.processing.strategies import AtLast, Fate, SkipOrDeadLetter
from spark_groups.spark.processing.totals import RecordTotals
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS
from spark_groups.spark.schemas.decoders import row_schema
from spark_groups.spark.schemas.row_formats import OnUndecodable
from spark_groups.spark.source.packing import pack
from spark_groups.spark.tables.batch_rows import NAMING_MAX_S, RowsToStage, RowsTransform
from spark_groups.spark.tables.expanded import Expanded
from spark_groups.spark.tables.left_out import LeftOut
from spark_groups.spark.tables.range_rows import compare_range_rows, stage_range_rows
from spark_groups.spark.tables.routes import (
    Asked,
    Route,
    Target,
    Targets,
    Writing,
    write_together,
)
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.tasks import (
    ArrowTransform,
    RangesToTable,
    RangesToTables,
    arrow_schema,
    changed,
    refusals_of_tasks,
)
from spark_groups.types import EARLIEST_TIMESTAMP, OffsetRange, TopicIdPartition
from spark_groups.wire.configuration import refuse

logger = logging.getLogger(__name__)

_NOT_AS_LOADED: Final = (
    "write_table takes a stream of kafka-group as load() returned it: pass a function that changes"
    " the rows as its second argument"
)


def write_table(
    table: FencedTable | Route,
    transform: RowsTransform | ArrowTransform | None = None,
    *,
    on_error: SkipOrDeadLetter | None = None,
    expand: str | Sequence[str] = (),
    envelope: Literal["debezium"] | None = None,
) -> TableWriter:
    """Return a function for `writeStream.foreachBatch` that writes each record exactly once.

    The stream has to be the one that `load()` returned: the transform changes the rows. With
    `emit=ranges`, tasks read the records and write them, and no row passes through the JVM.

    A table that no batch could be written to is refused now; through Spark Connect, where the
    function runs on the server's host and `emit=ranges` is required, when the query starts. To have
    everything else that is known refused before the query starts, such as columns, call `check` of
    what this returns, in a classic session.

    Args:
        table: A table from `delta_table`, `iceberg_table`, `postgres_table`, `sqlite_table` or
            `own_table`. Or the table of each topic: a mapping of topics to tables, or a function
            that takes the name of a topic, is called once for each topic, and returns a table.
            Topics may share a table, which is then the same object. Each table has a fence of its
            own, and the transform gets the rows of one table at a time.
        transform: Takes the rows of a batch as a DataFrame and returns a DataFrame; with
            `emit=ranges`, takes a `pyarrow.RecordBatch` and returns one, on executors.
        on_error: What becomes of a record that the transform or the table cannot take: it is left
            out, and becomes a dead letter or is only counted. None: the batch fails, and the error
            names the record.
        expand: Instead of a transform: the columns, such as `value`, whose fields the table gets as
            columns. A record whose column is null becomes a row of nulls; in a table with
            `merge_on`, a record whose value is null deletes the row of its key, so `("key",
            "value")` takes the key from the record's key.
        envelope: "debezium" where each value has the `op` of a change and the row `before` and
            `after` it; for a table with `merge_on`. The table gets the fields of the row.

    Raises:
        OptionsError: `on_error` is a strategy that tables do not have, or both `transform` and
            `expand` or `envelope` are given, or the table has no `merge_on` for an `envelope`.
        TableError: The table cannot be reached, or has a setting that this writer refuses.
    """
    columns = (expand,) if isinstance(expand, str) else tuple(expand)
    if transform is not None and (columns or envelope):
        raise OptionsError("transform is given: leave expand and envelope to the transform")
    if envelope not in {None, "debezium"}:
        raise OptionsError(f"envelope is {envelope!r}, not 'debezium'")
    targets = Targets(table, on_error)
    transform_of = _TransformOf(transform, columns, envelope is not None)
    for target in targets.known():
        transform_of(target.table)
    if not is_remote():
        _check_tables(targets)
    return TableWriter(targets, transform_of, on_error)


def _check_tables(targets: Targets) -> None:
    for target in targets.known():
        # Another writer that changes the table now says nothing about the first batch.
        with suppress(TableChangedError):
            target.table.check()


def _received(*given: Any) -> TableWriter:
    """Return a writer that came from another process, such as the client of a Connect server.

    Raises:
        TableError: A Connect server is about to start a query, and no batch could be written.
    """
    writer = TableWriter(*given)
    if is_served():
        _check_tables(writer._targets)
        batch_channel()
    return writer


@dataclass(frozen=True, slots=True)
class _TransformOf:
    """What changes the rows of a table.

    Args:
        transform: What the application gives; None: the columns are expanded, if there are any.
        columns: The columns whose fields a table gets.
        is_envelope: Whether values are changes in Debezium's envelope.
    """

    transform: Any
    columns: tuple[str, ...]
    is_envelope: bool

    def __call__(self, table: FencedTable) -> Any:
        """Return the transform for a table; None: its rows are written as they are.

        Raises:
            OptionsError: The table has no key for the changes of an envelope.
        """
        if self.is_envelope and table.upsert is None:
            raise OptionsError(
                f"envelope needs a table with merge_on, which names the key of its rows: {table}"
            )
        if self.transform is not None or not (self.columns or table.upsert):
            return self.transform
        columns = self.columns or (("value",) if self.is_envelope else ())
        return Expanded(columns, table.upsert, is_envelope=self.is_envelope)


class TableWriter:
    """A function for `foreachBatch`; `write_table` makes one.

    Args:
        targets: The table, or the tables of the topics.
        transform_of: Returns what changes the rows of a table; None: they are written as they are.
        on_error: What becomes of records that cannot be written; None: the batch fails.
    """

    def __init__(
        self,
        targets: Targets,
        transform_of: Callable[[FencedTable], Any],
        on_error: SkipOrDeadLetter | None = None,
    ) -> None:
        self._targets = targets
        self._transform_of = transform_of
        self._on_error = on_error
        self._totals = RecordTotals()
        self._notices = Notices()
        self._frames: dict[int | str, tuple[str, int]] = {}
        """The run and batch of the last frame."""

    def __reduce__(self) -> tuple[Callable[..., TableWriter], tuple[Any, ...]]:
        return _received, (self._targets, self._transform_of, self._on_error)

    @property
    def totals(self) -> Mapping[Fate, int]:
        """Counts of the records that were left out or not decoded, by fate, since the application
        started.
        """
        return self._totals.by_fate()

    def check(self, stream: DataFrame) -> None:
        """Refuse now what the first batch would be refused for.

        The transform is called with no rows, to learn its columns; with `emit=ranges` and several
        tables it is not, because it may look at the topic.

        Args:
            stream: The stream that `load()` has returned.

        Raises:
            OptionsError: The stream is not the one that `load()` returned, or its options do not
                fit the table or `on_error`; or a topic has no table, or no dead-letter topic.
            TableError: The table cannot be written, or lacks the columns.
            AnalysisException: Expressions of the transform do not fit the stream.
        """
        checked, is_as_loaded = loaded_stream(stream, "check")
        if not is_as_loaded:
            raise OptionsError(_NOT_AS_LOADED)
        topics = checked.subscription.topic_names
        targets = [*self._targets.known(topics)]
        self._check_formats(checked, targets)
        is_of_ranges = checked.emit is Emit.RANGES
        given_by: dict[Any, pa.Schema | None] = {}
        for target in targets:
            columns, transform = target.table.check(), self._transform_of(target.table)
            is_known = transform is None or isinstance(transform, Expanded) or not is_of_ranges
            # A transform of the application's may have no hash.
            key = transform if isinstance(transform, Expanded) else id(transform)
            if key not in given_by and (self._targets.is_one or is_known):
                given_by[key] = _given_columns(transform, stream, checked)
            given = given_by.get(key)
            if target.letter_box is not None:
                own = topics if self._targets.is_one else target.topics.intersection(topics)
                target.letter_box.check(checked, own)
            if is_of_ranges and columns is None:
                target.table.task_writer(Attempt(checked.group_id, 0, "check"))
            if given is not None and columns is not None:
                columns.check(given)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch.

        Args:
            batch: Its rows.
            batch_id: Spark's number for it.

        Raises:
            OptionsError: The stream is not the one that `load()` returned, the frame is not the
                batch, or a topic has no table.
            TableError: The batch cannot be written; the message has the reason and the remedy.
        """
        if is_served():
            running = served_query(batch, "write_table")
        else:
            running = running_query(batch, "write_table")
        if not running.is_as_loaded:
            raise OptionsError(_NOT_AS_LOADED)
        self._check_frame(batch, (running.run_id, batch_id))
        batch_of_all = Batch(
            running.checked.group_id,
            batch_id,
            running.ranges,
            topics=running.topics,
            before=running.before,
            run_id=running.run_id,
        )
        subscription = running.checked.subscription
        parts = self._targets.parts(batch_of_all, time.monotonic(), subscription)
        self._check_formats(running.checked, parts)
        for target, part in parts.items():
            target.left_out = ()
            if target.letter_box is not None:
                target.letter_box.open(replace(running, ranges=part.ranges))
        logs = GroupLogs(running)
        is_compared = not is_served()

        def staged(asked: Mapping[Target, Asked]) -> dict[Target, Sequence[Piece]]:
            nonlocal is_compared
            is_compared = True
            return self._staged(batch, running, asked, batch_id)

        write_together(
            {
                target: write_steps(target.table, part, self._notices, logs, target.unsaved)
                for target, part in parts.items()
            },
            staged,
        )
        if not is_compared:
            compare_range_rows(batch, running.ranges)
        counts = (each.counts for target in parts for each in target.left_out)
        self._totals.add(chain.from_iterable(counts), batch_id)
        self._totals.report(running)
        # The table proves the batch: its offsets are committed at once.
        report_done(running)

    def _check_formats(self, checked: SourceOptions, targets: Iterable[Target]) -> None:
        """Refuse what cannot be done with records that are decoded.

        Raises:
            OptionsError: Records that are left out have no bytes, or have no place to go.
        """
        is_decoded = checked.range_settings().formats is not None
        for target in targets:
            is_change = isinstance(self._transform_of(target.table), Expanded)
            if not (is_decoded and is_change) or target.table.upsert is None:
                continue
            if checked.on_undecodable is OnUndecodable.NULL:
                raise OptionsError(
                    "onUndecodable is null: in a table with merge_on, a value that cannot be"
                    " decoded would delete the row of its key. Choose fail or deadLetters"
                )
        if checked.on_undecodable is OnUndecodable.DEAD_LETTERS and self._on_error is None:
            raise OptionsError(
                "onUndecodable is deadLetters: give write_table an on_error, such as"
                " SkipOrDeadLetter(), which says what becomes of such records"
            )
        if is_decoded and self._on_error is not None and checked.emit is not Emit.RANGES:
            raise OptionsError(
                "with keyFormat or valueFormat, on_error requires emit=ranges: other rows lack the"
                " bytes of their records, which dead letters keep"
            )

    def _check_frame(self, batch: DataFrame, of: tuple[str, int]) -> None:
        """Refuse a frame that is not the batch.

        Raises:
            OptionsError: It was made of the batch, read elsewhere, or is that of an earlier batch.
        """
        cure = "a function that changes the rows is the second argument of write_table"
        frame = batch_frame_id(batch, "write_table", cure)
        if self._frames.setdefault(frame, of) != of:
            raise OptionsError("the function of write_table got the DataFrame of an earlier batch")
        self._frames = {frame: of}

    def _staged(
        self, batch: DataFrame, running: RunningQuery, asked: Mapping[Target, Asked], batch_id: int
    ) -> dict[Target, Sequence[Piece]]:
        """Stage the rows of some ranges, and write the letters of records that are left out.

        The letters are written before the table's commit: after it, nothing would repeat them.
        """
        at_last = None if self._on_error is None else self._on_error.at_last
        is_of_ranges = running.checked.emit is Emit.RANGES
        stage = self._staged_by_tasks if is_of_ranges else self._staged_rows
        staged: dict[Target, Sequence[Piece]] = {}
        for target, found in stage(batch, running, asked, at_last).items():
            target.left_out = [each for each in found if isinstance(each, LeftOut)]
            pieces: Sequence[Piece] = [each for each in found if isinstance(each, Piece)]
            if target.letter_box is not None:
                pieces = [*pieces, *target.letter_box.write(target.left_out, running, batch_id)]
            staged[target] = pieces
        return staged

    def _staged_rows(
        self,
        batch: DataFrame,
        running: RunningQuery,
        asked: Mapping[Target, Asked],
        at_last: AtLast | None,
    ) -> dict[Target, list[Piece | LeftOut]]:
        """Stage the rows of some ranges with a job for each table."""
        search_max_s = NAMING_MAX_S
        if at_last is not None:
            search_max_s = BUDGET_SHARE * running.checked.max_poll_interval_ms / 1000
        found: dict[Target, list[Piece | LeftOut]] = {}
        if len(asked) > 1:
            # Else the job of each table would read the whole batch from Kafka.
            batch.persist()
        try:
            for target, (ranges, attempt) in asked.items():
                rows = RowsToStage(
                    batch, running.ranges, self._transform_of(target.table), target.table
                )
                pieces, left_out = rows.staged(ranges, attempt, at_last, search_max_s)
                found[target] = [*pieces, left_out]
        finally:
            if len(asked) > 1:
                batch.unpersist()
        return found

    def _staged_by_tasks(
        self,
        batch: DataFrame,
        running: RunningQuery,
        asked: Mapping[Target, Asked],
        at_last: AtLast | None,
    ) -> dict[Target, list[Piece | LeftOut]]:
        """Stage the rows of some ranges with tasks that read the ranges, in one job."""
        checked = running.checked
        settings = running.reading_settings()
        works = [
            RangesToTable(
                settings,
                self._transform_of(target.table),
                target.table.task_writer(each.attempt),
                at_last,
            )
            for target, each in asked.items()
        ]
        indexes = {r.topic_id: at for at, each in enumerate(asked.values()) for r in each.ranges}
        ranges = [*chain.from_iterable(each.ranges for each in asked.values())]
        work = RangesToTables(works, indexes)
        with refusals_of_tasks():
            if is_served():
                staged = stage_range_rows(batch, work, ranges, running.ranges)
            else:
                context = batch.sparkSession.sparkContext
                tasks = pack(
                    ranges,
                    default_tasks=context.defaultParallelism,
                    min_partitions=checked.min_partitions,
                    max_records_per_partition=checked.max_records_per_partition,
                    table_of=indexes,
                )
                staged = context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
        found: dict[Target, list[Piece | LeftOut]] = {target: [] for target in asked}
        targets = [*asked]
        for index, each in staged:
            found[targets[index]].append(each)
        return found


def _given_columns(transform: Any, stream: DataFrame, checked: SourceOptions) -> pa.Schema | None:
    """Return the columns that a transform makes of no records; None: they are not known yet.

    Raises:
        AnalysisException: Its expressions do not fit the stream.
        SchemaLookupError: A registry does not have a schema, or does not return it.
        TableError: It returns something else than rows, or columns that no table takes.
    """
    is_of_ranges = checked.emit is Emit.RANGES
    try:
        if is_of_ranges:
            settings, _ = with_schemas(checked)
            records = ROW_SCHEMA_WITH_HEADERS if checked.include_headers else ROW_SCHEMA
            schema = row_schema(records, settings.formats)
            made = changed(transform, pa.RecordBatch.from_pylist([], schema=schema))
        else:
            empty = stream.sparkSession.createDataFrame([], stream.schema)
            made = empty if transform is None else transform(empty)
    except (AnalysisException, SchemaLookupError, TableError):
        raise
    except Exception as error:
        logger.debug("the transform does not take a batch without rows: %s", error)
        return None
    if not is_of_ranges:
        return arrow_schema(made)
    # Without records, columns whose types Arrow infers have none; such a transform tells nothing.
    is_known = len(made.schema) and not any(pa.types.is_null(each.type) for each in made.schema)
    return made.schema if is_known else None


class Notices:
    """Logs each WARN once, not with every batch."""

    def __init__(self) -> None:
        self._skipped: dict[FenceKey, int] = {}
        self._others: set[str] = set()

    def log(self, table: FencedTable, skips: Iterable[Skip], others: Iterable[str]) -> None:
        """Log skipped offsets of each partition, and groups that write the same topics, at WARN.

        Args:
            table: The table.
            skips: The offsets of a batch that the table has.
            others: A sentence for each other group.
        """
        for skip in skips:
            if self._skipped.get(skip.key) != skip.next_offset:
                self._skipped[skip.key] = skip.next_offset
                logger.warning("%s: %s", table, skip)
        for sentence in others:
            if sentence not in self._others:
                self._others.add(sentence)
                logger.warning("%s: %s", table, sentence)


def write_steps(
    table: FencedTable,
    batch: Batch,
    notices: Notices,
    logs: GroupLogs | None = None,
    unsaved: UnsavedEntries | None = None,
    *,
    pause: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Writing:
    """Write the part of a batch that one table lacks: take the steps of `BatchWrite`.

    Args:
        table: The table.
        batch: The batch.
        notices: Remembers which WARNs were logged.
        logs: Reports deleted records and the group's committed offsets; None: there are none.
        unsaved: Remembers where the group began partitions, while the table does not exist.
        pause: Waits before a refused writer compares again.
        now: The clock, in seconds.

    Raises:
        TableError: The batch cannot be written.
    """
    write = BatchWrite(batch, str(table), unsaved or UnsavedEntries(), random.uniform)
    attempt: Attempt = _new_attempt(batch)
    pieces: Sequence[Piece] = ()
    while not isinstance(step := write.step(now()), Written):
        match step:
            case AskCommitted(needed=needed):
                write.committed(logs.committed(needed) if logs else {})
            case AskKept(ranges=ranges):
                write.kept(logs.kept(ranges) if logs else ranges)
            case Warn(skips=skips, others=others):
                notices.log(table, skips, others)
            case StageRows(ranges=ranges):
                attempt = _new_attempt(batch)
                pieces = yield Asked(ranges, attempt)
            case Pause(seconds=seconds):
                pause(seconds)
            case ReadFence() | CommitEntries() | CommitRows():
                try:
                    _read_or_commit(table, batch, write, step, (attempt, pieces))
                except TableChangedError as error:
                    write.refused(error)
                    logger.info("batch %d is compared again: %s", batch.batch_id, error)


def _read_or_commit(
    table: FencedTable,
    batch: Batch,
    write: BatchWrite,
    step: ReadFence | CommitEntries | CommitRows,
    staged: tuple[Attempt, Sequence[Piece]],
) -> None:
    match step:
        case ReadFence(topic_ids=topic_ids):
            write.fence_read(table.read(batch.group_id, topic_ids))
        case CommitEntries(decision=decision, state=state):
            table.commit(_new_attempt(batch), [], decision, state)
        case CommitRows(decision=decision, state=state):
            table.commit(*staged, decision, state)


def _new_attempt(batch: Batch) -> Attempt:
    return Attempt(batch.group_id, batch.batch_id, uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class GroupLogs:
    """Asks brokers which records of a batch's partitions were deleted or truncated.

    Each call raises a ProtocolError if a broker returns an error.

    Args:
        running: A query of the group.
    """

    running: RunningQuery

    def kept(self, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        """Return ranges without offsets before the beginning of the log.

        If `failOnDataLoss` is true, it returns all, and asks no broker.

        Args:
            ranges: The ranges of a batch.
        """
        if self.running.checked.fail_on_data_loss:
            return ranges
        keys = frozenset(offset_range.key for offset_range in ranges)
        with self.running.cluster() as cluster:
            request = ListOffsetsRequest(partitions=keys, timestamp_ms=EARLIEST_TIMESTAMP)
            listed = cluster.list_offsets(request)
        kept = []
        for offset_range in ranges:
            answer = listed.answers.get(offset_range.key, UNANSWERED)
            if not isinstance(answer, PartitionError):
                start: int | None = answer.offset
            elif rule_for(answer.error_code).offsets is Reaction.DROP_TOPIC:
                start = None
            else:
                refuse(answer.error_code, f"ListOffsets of {offset_range.topic_partition}")
            kept.append(kept_of(offset_range, start))
        return tuple(kept)

    def committed(self, needed: Collection[FenceKey] = ()) -> dict[FenceKey, OffsetAndMetadata]:
        """Return the group's committed offsets.

        A member commits where a partition starts, and the end of a truncated log with a mark,
        before it plans the partition. So any query that writes a batch finds these commits.

        Args:
            needed: Partitions whose offset must not be unknown.
        """
        group_id = self.running.checked.group_id
        keys = {TopicIdPartition(each.topic_id, each.partition) for each in needed}
        with self.running.cluster() as cluster:
            found = known_offsets(cluster, group_id, keys)
        return {
            FenceKey(group_id, key.topic_id, key.partition): each for key, each in found.items()
        }
