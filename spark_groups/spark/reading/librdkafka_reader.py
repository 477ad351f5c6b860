"""Reads offset ranges with confluent-kafka, each exactly to its end.

Consumers use `assign()`, join no group and commit nothing. A range may hold fewer records than
offsets: compaction, aborted transactions and control records leave gaps, even at its end. So a
range ends when a record at or past its end arrives, or at the end of the partition; never by count.
`gaps` compares the gaps with the log.
"""

from __future__ import annotations

import contextlib
import gc
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.group.member.grant_command import remedy_of
from spark_groups.records.misfits import MAX_MS, MisfitCounts, TimestampMisfits, warn_of_misfits
from spark_groups.spark.options.range_settings import (
    RangeSettings,
    UnreadableTimestamp,
    lose,
    rounds,
)
from spark_groups.spark.reading.consumer_cache import LIBRDKAFKA_IDLE_S, ConsumerCache
from spark_groups.spark.reading.gaps import GAPS_MAX, USE_FAST, Cursor, unread
from spark_groups.spark.reading.librdkafka_consumer import ASK_AGAIN_S, BEHIND, GONE, RangeConsumer
from spark_groups.spark.reading.rows import HEADERS, ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS, TIMESTAMP
from spark_groups.types import OffsetRange, TopicId, TopicPartition, topic_id_text
from spark_groups.wire.fetch.first_unread import Passed

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
TAKE_ROWS: Final = 2_000
"""Messages per call; more are slower."""
_POLL_S: Final = 0.5
_TOPICS_S: Final = 5.0
"""How long a broker with stale metadata may return other topic IDs than planned."""
_STALLED_S: Final = 5.0
"""How long to look in the log for a record that librdkafka did not return in time."""
_SAMPLE_EVERY: Final = 16
"""One in so many messages is sampled for the row size."""

_FATAL_READS: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
)
_UNREADABLE: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
"""Errors with which librdkafka asks for the same batch again, for ever."""
# librdkafka counts the types of timestamps from 0 = none; Kafka's Java classes from -1 = none.
_NOT_AVAILABLE: Final = 0
NO_TIMESTAMP_MS: Final = -1


CONSUMERS: Final = ConsumerCache(RangeConsumer, idle_s=LIBRDKAFKA_IDLE_S)


def read_ranges(
    settings: RangeSettings,
    ranges: Iterable[OffsetRange],
    *,
    cache: ConsumerCache[RangeConsumer] = CONSUMERS,
) -> Iterator[pa.RecordBatch]:
    """Read all rows of ranges; see `reader.RangeReader`."""
    collecting = gc.isenabled()
    # Thousands of new messages would trigger collections that free nothing.
    gc.disable()
    try:
        with cache.borrow(settings) as consumer:
            existing = _existing(consumer, ranges)
            if existing:
                # The log of the time since the last task.
                consumer.fetcher.poll(0)
                deadline = time.monotonic() + settings.request_timeout_s
                consumer.is_still_there(existing[0].topic, deadline)
            consumer.look_up(each.topic for each in existing)
            for each in rounds(existing):
                yield from _Round(consumer, each).batches()
            # librdkafka fetches by name, so the topic may have been replaced meanwhile.
            _existing(consumer, existing)
    finally:
        if collecting:
            gc.enable()


def warm_up(
    settings: RangeSettings,
    topics: Sequence[str],
    *,
    cache: ConsumerCache[RangeConsumer] = CONSUMERS,
) -> None:
    """Look up topics, which opens connections; librdkafka connects to leaders when it fetches."""
    # Arrow imports pandas where Python values become arrays.
    pa.array([], pa.int64())
    with cache.borrow(settings) as consumer:
        if topics:
            consumer.look_up(consumer.topic_ids(topics))


def _existing(consumer: RangeConsumer, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges whose topic still has the planned ID."""
    wanted = sorted(offset_range for offset_range in ranges if len(offset_range))
    if not wanted:
        return []
    ids = _topic_ids(consumer, {(each.topic, each.topic_id) for each in wanted})
    for (topic, topic_id), lost in groupby(wanted, key=lambda each: (each.topic, each.topic_id)):
        if ids.get(topic) != topic_id:
            offsets = sum(map(len, lost))
            now = "was deleted" if topic not in ids else "was deleted and created again"
            lose(
                consumer.settings,
                f"the topic {topic} ({topic_id_text(topic_id)}) {now}:"
                f" {offsets} offsets cannot be read",
            )
    return [each for each in wanted if ids.get(each.topic) == each.topic_id]


def _topic_ids(
    consumer: RangeConsumer, planned: Collection[tuple[str, TopicId]]
) -> dict[str, TopicId]:
    """Return the current IDs of topics; retry if they differ from the plan.

    A broker that has just started, or lags behind, responds with stale metadata.
    """
    topics = {topic for topic, _ in planned}
    deadline = time.monotonic() + min(_TOPICS_S, consumer.settings.request_timeout_s)
    while True:
        is_over = time.monotonic() >= deadline
        try:
            ids = consumer.topic_ids(topics)
        except BrokerUnreachableError:
            if is_over or time.monotonic() >= deadline:
                raise
        else:
            if all(ids.get(topic) == topic_id for topic, topic_id in planned):
                return ids
            if is_over:
                # Topics of another cluster say nothing about these.
                consumer.check_topic_ids()
                return ids
        time.sleep(ASK_AGAIN_S)


class _Round:
    """One assignment of ranges, at most one per partition, read to its end."""

    def __init__(self, consumer: RangeConsumer, ranges: Sequence[OffsetRange]) -> None:
        self._consumer = consumer
        self._settings = consumer.settings
        self._topic_ids = {offset_range.topic: offset_range.topic_id for offset_range in ranges}
        self._cursors = {
            offset_range.topic_partition: Cursor.of(offset_range) for offset_range in ranges
        }
        """The unfinished ranges."""
        self._single = next(iter(self._cursors)) if len(self._cursors) == 1 else None
        self._buffer = RowBuffer(
            include_headers=self._settings.include_headers,
            null_timestamps=self._settings.on_unreadable_timestamp is UnreadableTimestamp.NULL,
        )
        self._row_bytes = BATCH_BYTES // TAKE_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._assign()
        deadline = time.monotonic() + self._settings.poll_timeout_s
        while self._cursors:
            messages = self._take(deadline)
            events: list[Message] = []
            if any(map(Message.error, messages)):
                events = [message for message in messages if message.error() is not None]
                messages = [message for message in messages if message.error() is None]
            # Rows before events: the end of a partition follows its last rows.
            if messages:
                self._add(messages)
                # Nor does time in which gaps were compared count against the brokers.
                deadline = time.monotonic() + self._settings.poll_timeout_s
            self._note_events(events)
            if not messages and self._cursors and time.monotonic() >= deadline:
                self._end_cut()
                deadline = time.monotonic() + self._settings.poll_timeout_s
            if len(self._buffer) >= BATCH_ROWS or self._buffer.size_bytes >= BATCH_BYTES:
                yield self._buffer.take()
                # Time that Spark spends on a batch does not count against the brokers.
                deadline = time.monotonic() + self._settings.poll_timeout_s
        if self._buffer:
            yield self._buffer.take()
        warn_of_misfits(self._buffer.misfits.take())

    def _assign(self) -> None:
        positions = [_position(cursor) for cursor in self._cursors.values()]
        self._consumer.fetcher.assign(positions)

    def _take(self, deadline: float) -> list[Message]:
        """Return messages and events; none after the deadline, or after a visit elsewhere."""
        fetcher = self._consumer.fetcher
        # A call without a timeout returns only prefetched messages, whose size the queue limits.
        wanted = max(1, min(TAKE_ROWS, BATCH_BYTES // self._row_bytes))
        messages: list[Message] = fetcher.consume(wanted, 0)
        while not messages:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            message = fetcher.poll(min(_POLL_S, left_s))
            messages = [message] if message is not None else []
        topic = next(iter(self._topic_ids))
        if not self._consumer.is_still_there(topic, deadline):
            # These may be of the other cluster.
            messages = []
            self._assign()
        return messages

    def _add(self, rows: Sequence[Message]) -> None:
        sample = rows[::_SAMPLE_EVERY]
        self._row_bytes = max(1, sum(map(len, sample)) // len(sample))
        if self._single is not None:
            self._add_run(self._single, rows)
            return
        for (topic, index), run in groupby(rows, key=_key):
            self._add_run(TopicPartition(topic, index), list(run))

    def _add_run(self, topic_partition: TopicPartition, run: Sequence[Message]) -> None:
        cursor = self._cursors.get(topic_partition)
        if cursor is None:
            return
        last_offset = _offset(run[-1])
        if last_offset >= cursor.until_offset:
            run = run[: bisect_left(run, cursor.until_offset, key=_offset)]
        reached = min(last_offset + 1, cursor.until_offset)
        if reached - cursor.next_offset == len(run):
            cursor.next_offset = reached
        else:
            cursor.pass_to(reached, map(_offset, run))
        if run:
            self._buffer.add(
                topic_partition.topic, topic_partition.partition, run, self._row_bytes * len(run)
            )
        if cursor.next_offset >= cursor.until_offset:
            self._end(cursor)
        elif len(cursor.missing) >= GAPS_MAX:
            cursor.compare(self._consumer.gaps)

    def _end(self, cursor: Cursor) -> None:
        cursor.compare(self._consumer.gaps)
        del self._cursors[cursor.topic_partition]
        if self._cursors:
            self._consumer.fetcher.incremental_unassign([_position(cursor)])

    def _note_events(self, events: Iterable[Message]) -> None:
        """Handle ends of partitions, and errors."""
        for event in events:
            error = event.error()
            cursor = self._cursors.get(TopicPartition(*_key(event)))
            if error is None or error.code() == KafkaError._MAX_POLL_EXCEEDED:
                continue
            if error.fatal() or error.code() in _FATAL_READS:
                remedy = remedy_of(
                    error.code(),
                    self._settings.identity,
                    group_id=self._settings.group_id,
                    topics=[topic] if (topic := event.topic()) else [],
                )
                raise SparkGroupsError(f"{_name(event)} cannot be read: {error.str()}; {remedy}")
            if cursor is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                if (event.offset() or 0) >= cursor.until_offset:
                    cursor.pass_to(cursor.until_offset)
                    self._end(cursor)
            elif error.code() in _UNREADABLE:
                what = f"cannot be read by librdkafka ({error.str()})"
                raise unread(cursor.topic_partition, event.offset() or cursor.next_offset, what)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._consumer.last_error = f"{_name(event)}: {error.str()}"
                self._skip_lost(cursor)
            else:
                self._consumer.last_error = f"{_name(event)}: {error.str()}"
                if error.code() in GONE:
                    self._look_again(cursor, error)

    def _look_again(self, cursor: Cursor, error: KafkaError) -> None:
        """Continue if a partition exists although librdkafka reports that it does not.

        A topic never loses a partition: while it has the planned ID, a broker is behind that has
        just started, or does not know a new partition yet.

        Raises:
            DataLossError: The topic was deleted, and `failOnDataLoss` is true.
        """
        topic = cursor.topic_partition.topic
        planned = self._topic_ids[topic]
        if _topic_ids(self._consumer, {(topic, planned)}).get(topic) == planned:
            self._skip_lost(cursor)
            return
        lose(self._settings, f"{cursor} cannot be read: {error.str()}")
        self._end(cursor)

    def _skip_lost(self, cursor: Cursor) -> None:
        """Continue after offsets that the broker does not have.

        If the broker has them now, a new leader was behind, and no offset is lost.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        try:
            there = self._offsets_there(cursor)
        except KafkaException as error:
            raise self._consumer.failure(
                error.args[0], f"listing the offsets of {cursor.topic_partition}"
            ) from error
        if there.start <= cursor.next_offset < there.stop:
            time.sleep(ASK_AGAIN_S)
            self._assign()
            return
        self._lose_offsets(cursor, there)
        if not cursor.next_offset < there.start < cursor.until_offset:
            self._end(cursor)
            return
        cursor.skip_to(there.start)
        self._assign()

    def _end_cut(self) -> None:
        """End ranges that lie past the end of a truncated log.

        Raises:
            DataLossError: `failOnDataLoss` is true.
            BrokerUnreachableError: No log was truncated: no record arrived in time.
        """
        waiting = list(self._cursors.values())
        try:
            there = [self._offsets_there(each) for each in waiting]
        except KafkaException as error:
            raise self._timed_out() from error
        cut = [
            (cursor, offsets)
            for cursor, offsets in zip(waiting, there, strict=True)
            if cursor.next_offset >= offsets.stop
        ]
        if not cut:
            raise self._timed_out(self._hint())
        for cursor, offsets in cut:
            self._lose_offsets(cursor, offsets)
            self._end(cursor)

    def _lose_offsets(self, cursor: Cursor, there: range) -> None:
        lose(
            self._settings,
            f"{cursor} cannot be read: the broker has offsets from {there.start} until"
            f" {there.stop}",
        )

    def _offsets_there(self, cursor: Cursor) -> range:
        """Return the offsets that the broker has; ask again while brokers are behind.

        Raises:
            KafkaException: There was no answer in time, or another error.
            AnotherClusterError: It came from another cluster.
        """
        deadline = time.monotonic() + self._settings.request_timeout_s
        while True:
            left_s = max(ASK_AGAIN_S, deadline - time.monotonic())
            try:
                there = self._consumer.fetcher.get_watermark_offsets(
                    _position(cursor), timeout=left_s
                )
            except KafkaException as error:
                is_behind = error.args[0].code() in BEHIND
                if not is_behind or time.monotonic() + ASK_AGAIN_S >= deadline:
                    raise
                self._consumer.last_error = f"{cursor}: {error.args[0].str()}"
            else:
                self._consumer.check_cluster(cursor.topic_partition.topic)
                return range(*there)
            time.sleep(ASK_AGAIN_S)

    def _hint(self) -> str:
        """Return what to do if the log has records that librdkafka does not return."""
        each = next(iter(self._cursors.values()))
        ahead = range(each.next_offset, each.until_offset)
        with contextlib.suppress(SparkGroupsError):
            if self._consumer.gaps.missed(each.key, Passed(ahead, [ahead]), _STALLED_S):
                return f"; its leader returns records of {each}, though: {USE_FAST}"
        return ""

    def _timed_out(self, hint: str = "") -> BrokerUnreachableError:
        waiting = sorted(self._cursors.values(), key=lambda each: each.topic_partition)
        more = f" and {len(waiting) - 1} more ranges" if len(waiting) > 1 else ""
        return self._consumer.unreachable(
            f"reading {waiting[0]}{more} for {self._settings.poll_timeout_s:g} s"
            f" (kafkaConsumer.pollTimeoutMs){hint}"
        )


def _position(cursor: Cursor) -> Position:
    topic, index = cursor.topic_partition.topic, cursor.topic_partition.partition
    return Position(topic, index, cursor.next_offset)


def _key(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition()  # type: ignore[return-value]


def _offset(message: Message) -> int:
    return message.offset()  # type: ignore[return-value]


def _name(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}"


class RowBuffer:
    """Messages for one record batch.

    Args:
        null_timestamps: Whether a timestamp that does not fit microseconds becomes null; else it is
            an error.
    """

    def __init__(self, *, include_headers: bool, null_timestamps: bool = False) -> None:
        self._include_headers = include_headers
        self._null_timestamps = null_timestamps
        self.misfits = MisfitCounts()
        self._runs: list[tuple[str, int, int]] = []
        self._messages: list[Message] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(
        self, topic: str, topic_partition: int, messages: Sequence[Message], size_bytes: int
    ) -> None:
        """Add messages of one partition, in offset order.

        Args:
            size_bytes: Approximate.
        """
        self._runs.append((topic, topic_partition, len(messages)))
        self._messages += messages
        self.size_bytes += size_bytes

    def take(self) -> pa.RecordBatch:
        """Return the added messages, at least one, as one record batch, and clear the buffer.

        Raises:
            RecordsError: A timestamp does not fit microseconds.
        """
        runs, messages = self._runs, self._messages
        self._runs, self._messages, self.size_bytes = [], [], 0
        arrays = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _topics(runs, len(messages)),
            _partitions(runs, len(messages)),
            pa.array(list(map(Message.offset, messages)), pa.int64()),
            *self._timestamps(messages),
        ]
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)
        arrays.append(pa.array(list(map(_headers, messages)), HEADERS))
        return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA_WITH_HEADERS)

    def _timestamps(self, messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
        """Return the columns timestamp and timestampType, with the values of Java consumers."""
        types, times_ms = zip(*map(Message.timestamp, messages), strict=True)
        times: tuple[int | None, ...] = times_ms
        if _NOT_AVAILABLE in types:
            times = tuple(
                NO_TIMESTAMP_MS if kind == _NOT_AVAILABLE else time_ms
                for kind, time_ms in zip(types, times, strict=True)
            )
        if max(times_ms) > MAX_MS or min(times_ms) < -MAX_MS:
            times = tuple(
                self._fitting(message, time_ms)
                for message, time_ms in zip(messages, times, strict=True)
            )
        # Casting integers avoids a datetime per row.
        column = pa.array(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        if min(types) == max(types):
            return column, pa.repeat(pa.scalar(types[0] - 1, pa.int32()), len(messages))
        return column, pa.array([kind - 1 for kind in types], pa.int32())

    def _fitting(self, message: Message, timestamp_ms: int | None) -> int | None:
        """Return a timestamp that fits microseconds; None for another one, which is counted."""
        if timestamp_ms is None or abs(timestamp_ms) <= MAX_MS:
            return timestamp_ms
        found = TimestampMisfits(TopicPartition(*_key(message)), _offset(message), timestamp_ms)
        if not self._null_timestamps:
            raise found.error()
        self.misfits.add(found)
        return None


def _topics(runs: Sequence[tuple[str, int, int]], rows: int) -> pa.Array:
    names = {topic for topic, _, _ in runs}
    if len(names) == 1:
        return pa.repeat(pa.scalar(names.pop(), pa.string()), rows)
    return pa.concat_arrays(
        [pa.repeat(pa.scalar(topic, pa.string()), count) for topic, _, count in runs]
    )


def _partitions(runs: Sequence[tuple[str, int, int]], rows: int) -> pa.Array:
    if len(runs) == 1:
        return pa.repeat(pa.scalar(runs[0][1], pa.int32()), rows)
    indexes: list[int] = []
    for _, index, count in runs:
        indexes += [index] * count
    return pa.array(indexes, pa.int32())


def _headers(message: Message) -> list[tuple[str, Any]] | None:
    # Like Spark's Kafka source: null, not an empty list, for a record without headers.
    headers: list[tuple[str, Any]] | None = message.headers()  # type: ignore[assignment]
    return headers or None
