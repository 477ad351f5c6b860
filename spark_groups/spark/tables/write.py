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
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col

from spark_groups.errors import (
    OptionsError,
    Reaction,
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
    EARLIEST_TIMESTAMP,
    UNANSWERED,
    ListOffsetsRequest,
    OffsetAndMetadata,
    PartitionError,
)
from spark_groups.observation.observe import known_offsets
from spark_groups.spark.control.running_query import RunningQuery, batch_frame_id, running_query
from spark_groups.spark.options.option_values import Emit
from spark_groups.spark.source.packing import pack
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.tasks import ArrowTransform, RangesToTable, refusals_of_tasks
from spark_groups.types import OffsetRange, TopicIdPartition
from spark_groups.wire.configuration import refuse

logger = logging.getLogger(__name__)

_FROM: Final = "__spark_groups_from"

RowsTransform = Callable[[DataFrame], DataFrame]
Stage = Callable[[tuple[OffsetRange, ...], Attempt], Sequence[Piece]]


def write_table(
    table: FencedTable, transform: RowsTransform | ArrowTransform | None = None
) -> TableWriter:
    """Return a function for `writeStream.foreachBatch` that writes each record exactly once.

    The stream has to be the one that `load()` returned: the transform changes the rows. With
    `emit=ranges`, tasks read the records and write them, and no row passes through the JVM.

    Args:
        table: A table from `delta_table`, `iceberg_table`, `postgres_table`, `sqlite_table` or
            `own_table`.
        transform: Takes the rows of a batch as a DataFrame and returns a DataFrame; with
            `emit=ranges`, takes a `pyarrow.RecordBatch` and returns one, on executors.
    """
    return TableWriter(table, transform)


class TableWriter:
    """A function for `foreachBatch`; `write_table` makes one.

    Args:
        table: The table.
        transform: Changes the rows; None: they are written as they are.
    """

    def __init__(
        self, table: FencedTable, transform: RowsTransform | ArrowTransform | None
    ) -> None:
        self._table = table
        self._transform: Any = transform
        self._notices = Notices()
        self._unsaved = UnsavedEntries()
        self._frames: dict[int, tuple[str, int]] = {}
        """The run and batch of the last frame."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch.

        Args:
            batch: Its rows.
            batch_id: Spark's number for it.

        Raises:
            OptionsError: The stream is not the one that `load()` returned, or the frame is not the
                batch.
            TableError: The batch cannot be written; the message has the reason and the remedy.
        """
        running = running_query(batch, "write_table")
        if not running.is_as_loaded:
            raise OptionsError(
                "write_table takes a stream of kafka-group as load() returned it: pass a function"
                " that changes the rows as its second argument"
            )
        self._check_frame(batch, (running.run_id, batch_id))
        write_batch(
            self._table,
            Batch(
                running.checked.group_id,
                batch_id,
                running.ranges,
                topics=running.topics,
                before=running.before,
                run_id=running.run_id,
            ),
            lambda ranges, attempt: self._staged(batch, running, ranges, attempt),
            self._notices,
            GroupLogs(running),
            self._unsaved,
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
        self,
        batch: DataFrame,
        running: RunningQuery,
        ranges: tuple[OffsetRange, ...],
        attempt: Attempt,
    ) -> Sequence[Piece]:
        """Stage the rows of some ranges with a Spark job, or with tasks that read the ranges."""
        checked = running.checked
        if checked.emit is not Emit.RANGES:
            rows = rows_of(batch, running.ranges, ranges)
            changed = rows if self._transform is None else self._transform(rows)
            return self._table.write_rows(changed, attempt)
        context = batch.sparkSession.sparkContext
        tasks = pack(
            ranges,
            default_tasks=context.defaultParallelism,
            min_partitions=checked.min_partitions,
            max_records_per_partition=checked.max_records_per_partition,
        )
        work = RangesToTable(
            running.range_settings(), self._transform, self._table.task_writer(attempt)
        )
        with refusals_of_tasks():
            return context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()


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


def write_batch(  # noqa: PLR0917
    table: FencedTable,
    batch: Batch,
    stage: Stage,
    notices: Notices,
    logs: GroupLogs | None = None,
    unsaved: UnsavedEntries | None = None,
    *,
    pause: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Write the part of a batch that the table lacks: take the steps of `BatchWrite`.

    Args:
        table: The table.
        batch: The batch.
        stage: Stages the rows of ranges for an attempt.
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
                pieces = stage(ranges, attempt)
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


def rows_of(
    rows: DataFrame, planned: Sequence[OffsetRange], wanted: Sequence[OffsetRange]
) -> DataFrame:
    """Return the rows of some ranges of a batch.

    Args:
        rows: The rows of the batch, with the stream's columns.
        planned: The ranges of the batch.
        wanted: Some of these ranges, some of them without their first offsets.

    Raises:
        TableError: A topic was deleted and created again within the batch.
    """
    if set(wanted) == {each for each in planned if len(each)}:
        return rows
    names = {each.topic_partition for each in planned}
    if len(names) < len(planned):
        raise TableError(
            "a topic was deleted and created again within one batch, so rows of the old and the"
            " new one have the same topic name; write this batch with emit=ranges"
        )
    bounds = rows.sparkSession.createDataFrame(
        [(each.topic, each.partition, each.from_offset) for each in wanted],
        f"topic string, partition int, {_FROM} bigint",
    )
    return (
        rows.join(broadcast(bounds), ["topic", "partition"])
        .where(col("offset") >= col(_FROM))
        .select(*rows.columns)
    )
