"""`spark_groups.write_table`: writes the batches of a group to a table, each record exactly once.

The order is: staged rows, the commit of the table, Spark's commit log, the offset commit. After a
crash between any two of them, Spark runs the batch again, and the table's fence tells which part of
it the table has already.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
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
from spark_groups.group.member.backoff import FIRST_BACKOFF_S, MAX_BACKOFF_S
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
from spark_groups.spark.tables.fence import (
    Begun,
    Decision,
    Entry,
    EntryChange,
    FenceKey,
    TableState,
    beginnings,
    check_not_restored,
    check_not_truncated,
    compare,
    other_groups,
)
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.tasks import ArrowTransform, RangesToTable, refusals_of_tasks
from spark_groups.types import OffsetRange, PlanTopic, TopicId, TopicIdPartition
from spark_groups.wire.configuration import refuse

logger = logging.getLogger(__name__)

COMMIT_WAIT_S: Final = 300.0
"""For how long a batch is compared again because other writers commit to the same table, in
seconds: as long as the default of `kafka.max.poll.interval.ms`, after which other members own its
partitions."""
LOOK_AGAIN_S: Final = 10.0
"""The least time between looks at committed offsets for partitions that no member has begun,
in seconds."""
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
        self._beginnings = Beginnings()
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
            self._beginnings,
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


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query.

    Args:
        group_id: The query's group.
        batch_id: Spark's number for the batch.
        ranges: The planned ranges.
        topics: The topics that the query reads, with their partition counts when the group began.
        before: The ranges of the query's previous batch, which is in Spark's log as done.
        run_id: Spark's id of the run of the query.
    """

    group_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    topics: tuple[PlanTopic, ...] = ()
    before: tuple[OffsetRange, ...] = ()
    run_id: str = ""

    def topic_names(self) -> dict[TopicId, str]:
        """Return the names of the topics by id."""
        read = {each.topic_id: each.name for each in self.topics}
        return read | {each.topic_id: each.topic for each in self.ranges}

    def own_attempt(self) -> Attempt:
        """Return a new attempt to write the batch."""
        return Attempt(self.group_id, self.batch_id, uuid.uuid4().hex[:12])


class Notices:
    """Logs each WARN once, not with every batch."""

    def __init__(self) -> None:
        self._skipped: dict[FenceKey, int] = {}
        self._others: set[str] = set()

    def log(self, table: FencedTable, decision: Decision, others: Iterable[str]) -> None:
        """Log skipped offsets of each partition, and groups that write the same topics, at WARN.

        Args:
            table: The table.
            decision: The result of the comparison.
            others: A sentence for each other group.
        """
        for skip in decision.skips:
            if self._skipped.get(skip.key) != skip.next_offset:
                self._skipped[skip.key] = skip.next_offset
                logger.warning("%s: %s", table, skip)
        for sentence in others:
            if sentence not in self._others:
                self._others.add(sentence)
                logger.warning("%s: %s", table, sentence)


@dataclass(slots=True)
class Beginnings:
    """The entries of partitions that a table does not have yet, during one run of a query.

    A table that does not exist cannot keep them, so this object does, until a batch creates it.
    """

    _run_id: str | None = None
    _unsaved: dict[FenceKey, Entry] = field(default_factory=dict)
    _look_at_s: float = 0.0

    def read(self, batch: Batch, state: TableState) -> TableState:
        """Return a table's fence with the entries that it cannot have yet.

        Args:
            batch: The batch to compare.
            state: The table's fence.
        """
        if self._run_id != batch.run_id:
            self._run_id, self._unsaved, self._look_at_s = batch.run_id, {}, 0.0
        self._unsaved = {
            key: entry for key, entry in self._unsaved.items() if key not in state.entries
        }
        topics = batch.topic_names()
        unsaved = {key: each for key, each in self._unsaved.items() if key.topic_id in topics}
        return replace(state, unsaved=unsaved)

    def find(
        self, batch: Batch, state: TableState, logs: GroupLogs | None, now_s: float
    ) -> tuple[EntryChange, ...]:
        """Return the entries with which the table begins partitions that it does not have.

        Args:
            batch: The batch to compare.
            state: What `read` returned.
            logs: Returns the group's committed offsets; None: they are unknown.
            now_s: The time, in seconds.
        """
        topics = batch.topic_names()
        lacking = {
            key
            for each in batch.ranges
            if len(each)
            and state.entry(key := FenceKey(batch.group_id, each.topic_id, each.partition)) is None
        }
        idle = (
            FenceKey(batch.group_id, each.topic_id, index)
            for each in batch.topics
            for index in range(each.known_count or 0)
        )
        is_first = bool(topics) and not self._look_at_s
        if not (lacking or is_first) and (now_s < self._look_at_s or all(map(state.entry, idle))):
            return ()
        self._look_at_s = now_s + LOOK_AGAIN_S
        committed = logs.committed(lacking) if logs else {}
        begun = Begun(committed, batch.before, logs.kept(batch.ranges) if logs else ())
        entries = beginnings(batch.group_id, batch.ranges, topics.keys(), begun, state)
        return tuple(EntryChange(key, None, entries[key]) for key in sorted(entries))

    def note(self, changes: Iterable[EntryChange]) -> None:
        """Note entries that the table may not have kept.

        Args:
            changes: The changes of the commit.
        """
        self._unsaved |= {each.key: each.entry for each in changes if each.expected is None}


def write_batch(  # noqa: PLR0917
    table: FencedTable,
    batch: Batch,
    stage: Stage,
    notices: Notices,
    logs: GroupLogs | None = None,
    begun: Beginnings | None = None,
    *,
    pause: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Write the part of a batch that the table lacks.

    Args:
        table: The table.
        batch: The batch.
        stage: Stages the rows of ranges for an attempt.
        notices: Remembers which WARNs were logged.
        logs: Reports deleted records and the group's committed offsets; None: there are none.
        begun: Remembers where the group began partitions, while the table does not exist.
        pause: Waits before a refused writer compares again.
        now: The clock, in seconds.

    Raises:
        TableError: The batch cannot be written.
    """
    topics = batch.topic_names()
    begun = begun or Beginnings()
    staged: tuple[tuple[OffsetRange, ...], Attempt, Sequence[Piece]] | None = None
    deadline_s = now() + COMMIT_WAIT_S
    for tries in itertools.count():
        try:
            state = begun.read(batch, table.read(batch.group_id, frozenset(topics)))
            check_not_restored(batch.group_id, state, table=str(table))
            if first := begun.find(batch, state, logs, now()):
                # Before any row: a batch that fails must not look like one that was not planned.
                if state.is_there:
                    table.commit(batch.own_attempt(), [], Decision(changes=first), state)
                begun.note(first)
                continue
        except TableChangedError as error:
            _check_in_time(now(), deadline_s, batch, error)
            pause(random.uniform(0, FIRST_BACKOFF_S))
            continue
        ranges = logs.kept(batch.ranges) if logs else batch.ranges
        decision = compare(batch.group_id, ranges, state, table=str(table))
        if decision.skips and logs:
            committed = logs.committed({each.key for each in decision.skips})
            check_not_truncated(decision.skips, committed, table=str(table))
        notices.log(table, decision, other_groups(batch.group_id, topics, state))
        if not decision.write:
            return
        if staged is None or staged[0] != decision.write:
            attempt = batch.own_attempt()
            staged = (decision.write, attempt, stage(decision.write, attempt))
            if logs and logs.kept(batch.ranges) != ranges:
                # Brokers may have deleted records before a task read them.
                continue
        try:
            table.commit(staged[1], staged[2], decision, state)
        except TableChangedError as error:
            _check_in_time(now(), deadline_s, batch, error)
            logger.info("batch %d is compared again: %s", batch.batch_id, error)
            # Writers that were refused at the same time must not try again at the same time. A
            # longer pause would make a batch later than the refusals that it avoids.
            pause(random.uniform(0, min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 10))))
        else:
            begun.note(decision.changes)
            return


def _check_in_time(now_s: float, deadline_s: float, batch: Batch, error: TableChangedError) -> None:
    if now_s >= deadline_s:
        raise TableChangedError(
            f"batch {batch.batch_id} could not be written for {COMMIT_WAIT_S:g} s. The last reason:"
            f" {error}"
        ) from error


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
        keys = frozenset(each.key for each in ranges)
        with self.running.cluster() as cluster:
            request = ListOffsetsRequest(partitions=keys, timestamp_ms=EARLIEST_TIMESTAMP)
            listed = cluster.list_offsets(request)
        kept = []
        for each in ranges:
            answer = listed.answers.get(each.key, UNANSWERED)
            if not isinstance(answer, PartitionError):
                start = answer.offset
            elif rule_for(answer.error_code).offsets is Reaction.DROP_TOPIC:
                # A deleted topic has no record, so its range becomes empty.
                start = each.until_offset
            else:
                refuse(answer.error_code, f"ListOffsets of {each.topic_partition}")
            first = max(each.from_offset, min(start, each.until_offset))
            kept.append(replace(each, from_offset=first))
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
