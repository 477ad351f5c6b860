"""Reads offset ranges by confluent-kafka, each exactly up to its end.

A range may hold fewer records than offsets: compaction, aborted transactions and control records
leave gaps, also at its end. So a range ends when a record at or past its end arrives, or when the
broker says that there is nothing more before it; never by counting.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.protocol.rights import remedy_of
from spark_groups.spark.options.range_settings import RangeSettings, lose, rounds
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.consumers import CONSUMERS, RangeConsumer
from spark_groups.spark.reading.rows import HEADERS, ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS, TIMESTAMP
from spark_groups.types import OffsetRange, TopicId, TopicPartition, topic_id_text

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
TAKE_ROWS: Final = 2_000
"""How many messages are taken at once: more of them is slower."""
_POLL_S: Final = 0.5
_TOPICS_S: Final = 5.0
"""How long a broker that has not caught up may name other topics than those that were planned."""
_ASK_AGAIN_S: Final = 0.2
_SAMPLE_EVERY: Final = 16
"""The size of the rows is estimated by one in so many."""

_FATAL_READS: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
)
_GONE: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
# librdkafka counts the types of timestamps from 0 = none; Kafka's Java classes from -1 = none.
_NOT_AVAILABLE: Final = 0
NO_TIMESTAMP_MS: Final = -1


def read_ranges(
    settings: RangeSettings,
    ranges: Iterable[OffsetRange],
    *,
    cache: ConsumerCache[RangeConsumer] = CONSUMERS,
) -> Iterator[pa.RecordBatch]:
    """Read ranges: all rows of each, in the order of their offsets.

    Raises:
        BrokerUnreachableError: No record came for `poll_timeout_s`; names what was waited for.
        DataLossError: Offsets are gone, and `failOnDataLoss` is true.
    """
    collecting = gc.isenabled()
    # Thousands of young messages make the collector run again and again, for nothing.
    gc.disable()
    try:
        with cache.borrow(settings) as consumer:
            existing = _existing(consumer, ranges)
            consumer.look_up(each.topic for each in existing)
            for each in rounds(existing):
                yield from _Round(consumer, each).batches()
            # By name, it would have gone on in a topic that was created again meanwhile.
            _existing(consumer, existing)
    finally:
        if collecting:
            gc.enable()


def _existing(consumer: RangeConsumer, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges whose topic is still the one that they were planned for."""
    wanted = sorted(each for each in ranges if len(each))
    if not wanted:
        return []
    ids = _topic_ids(consumer, {(each.topic, each.topic_id) for each in wanted})
    for (topic, topic_id), lost in groupby(wanted, key=lambda each: (each.topic, each.topic_id)):
        if ids.get(topic) != topic_id:
            offsets = sum(map(len, lost))
            now = "is gone" if topic not in ids else "was deleted and created again"
            lose(
                consumer.settings,
                f"the topic {topic} ({topic_id_text(topic_id)}) {now}:"
                f" {offsets} offsets cannot be read",
            )
    return [each for each in wanted if ids.get(each.topic) == each.topic_id]


def _topic_ids(
    consumer: RangeConsumer, planned: Collection[tuple[str, TopicId]]
) -> dict[str, TopicId]:
    """Return the ids that topics have now, asking again while they are not the planned ones.

    A broker that has just started, or is behind the others, answers from old metadata.
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
            if is_over or all(ids.get(topic) == topic_id for topic, topic_id in planned):
                return ids
        time.sleep(_ASK_AGAIN_S)


@dataclass(slots=True)
class _Cursor:
    """How far a range is read.

    Args:
        next_offset: The first offset that has not arrived.
        until_offset: The end of the range, exclusive.
    """

    topic_partition: TopicPartition
    next_offset: int
    until_offset: int

    def position(self) -> Position:
        return Position(
            self.topic_partition.topic, self.topic_partition.partition, self.next_offset
        )

    def __str__(self) -> str:
        return f"{self.topic_partition} from offset {self.next_offset} until {self.until_offset}"


class _Round:
    """One assignment of ranges, at most one for each partition, read to its end."""

    def __init__(self, consumer: RangeConsumer, ranges: Sequence[OffsetRange]) -> None:
        self._consumer = consumer
        self._settings = consumer.settings
        self._cursors = {
            each.topic_partition: _Cursor(each.topic_partition, each.from_offset, each.until_offset)
            for each in ranges
        }
        """Ranges that are not read to their end."""
        self._single = next(iter(self._cursors)) if len(self._cursors) == 1 else None
        self._buffer = RowBuffer(include_headers=self._settings.include_headers)
        self._row_bytes = BATCH_BYTES // TAKE_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all of it."""
        self._assign()
        deadline = time.monotonic() + self._settings.poll_timeout_s
        while self._cursors:
            messages = self._take(deadline)
            if not messages:
                self._end_cut()
                deadline = time.monotonic() + self._settings.poll_timeout_s
            events: list[Message] = []
            if any(map(Message.error, messages)):
                events = [each for each in messages if each.error() is not None]
                messages = [each for each in messages if each.error() is None]
            # Rows before events: the end of a partition comes behind its last rows.
            if messages:
                deadline = time.monotonic() + self._settings.poll_timeout_s
                self._add(messages)
            self._note_events(events)
            if len(self._buffer) >= BATCH_ROWS or self._buffer.size_bytes >= BATCH_BYTES:
                yield self._buffer.take()
                # What Spark does with a batch takes no time from the brokers.
                deadline = time.monotonic() + self._settings.poll_timeout_s
        if self._buffer:
            yield self._buffer.take()

    def _assign(self) -> None:
        positions = [cursor.position() for cursor in self._cursors.values()]
        self._consumer.fetcher.assign(positions)

    def _take(self, deadline: float) -> list[Message]:
        """Return the messages and events that have arrived, none only after the deadline."""
        fetcher = self._consumer.fetcher
        # Asking without waiting takes only what was fetched: its size is bounded by the queue's.
        wanted = max(1, min(TAKE_ROWS, BATCH_BYTES // self._row_bytes))
        messages: list[Message] = fetcher.consume(wanted, 0)
        while not messages:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            message = fetcher.poll(min(_POLL_S, left_s))
            messages = [message] if message is not None else []
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
        cursor.next_offset = last_offset + 1
        if run:
            self._buffer.add(
                topic_partition.topic,
                topic_partition.partition,
                run,
                self._row_bytes * len(run),
            )
        if cursor.next_offset >= cursor.until_offset:
            self._end(cursor)

    def _end(self, cursor: _Cursor) -> None:
        del self._cursors[cursor.topic_partition]
        if self._cursors:
            self._consumer.fetcher.incremental_unassign([cursor.position()])

    def _note_events(self, events: Iterable[Message]) -> None:
        """Act on what came in place of rows: ends of partitions, and errors."""
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
                    self._end(cursor)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._consumer.last_error = f"{_name(event)}: {error.str()}"
                self._skip_lost(cursor)
            elif error.code() in _GONE:
                lose(self._settings, f"{cursor} cannot be read: {error.str()}")
                self._end(cursor)
            else:
                self._consumer.last_error = f"{_name(event)}: {error.str()}"

    def _skip_lost(self, cursor: _Cursor) -> None:
        """Go on after offsets that the broker no longer has, or has not.

        Nothing is lost if it has them now: a new leader may have been behind for a moment.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        try:
            there = self._offsets_there(cursor)
        except KafkaException as error:
            raise self._consumer.failure(
                error.args[0], f"asking which offsets of {cursor.topic_partition} there are"
            ) from error
        if there.start <= cursor.next_offset < there.stop:
            time.sleep(_ASK_AGAIN_S)
            self._assign()
            return
        self._lose_offsets(cursor, there)
        if not cursor.next_offset < there.start < cursor.until_offset:
            self._end(cursor)
            return
        cursor.next_offset = there.start
        self._assign()

    def _end_cut(self) -> None:
        """Give up what waits behind the end of its partition, where a log was truncated.

        Raises:
            DataLossError: `failOnDataLoss` is true.
            BrokerUnreachableError: Nothing waits there: no record came in time.
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
            raise self._timed_out()
        for cursor, offsets in cut:
            self._lose_offsets(cursor, offsets)
            self._end(cursor)

    def _lose_offsets(self, cursor: _Cursor, there: range) -> None:
        lose(
            self._settings,
            f"{cursor} cannot be read: the broker has offsets from {there.start} until"
            f" {there.stop}",
        )

    def _offsets_there(self, cursor: _Cursor) -> range:
        return range(
            *self._consumer.fetcher.get_watermark_offsets(
                cursor.position(), timeout=self._settings.request_timeout_s
            )
        )

    def _timed_out(self) -> BrokerUnreachableError:
        waiting = sorted(self._cursors.values(), key=lambda each: each.topic_partition)
        more = f" and {len(waiting) - 1} more ranges" if len(waiting) > 1 else ""
        return self._consumer.unreachable(
            f"reading {waiting[0]}{more} for {self._settings.poll_timeout_s:g} s"
            " (kafkaConsumer.pollTimeoutMs)"
        )


def _key(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition()  # type: ignore[return-value]


def _offset(message: Message) -> int:
    return message.offset()  # type: ignore[return-value]


def _name(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}"


class RowBuffer:
    """Messages on their way into one record batch."""

    def __init__(self, *, include_headers: bool) -> None:
        self._include_headers = include_headers
        self._runs: list[tuple[str, int, int]] = []
        self._messages: list[Message] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(
        self, topic: str, topic_partition: int, messages: Sequence[Message], size_bytes: int
    ) -> None:
        """Take messages of one topic partition, in the order of their offsets.

        Args:
            size_bytes: Approximate.
        """
        self._runs.append((topic, topic_partition, len(messages)))
        self._messages += messages
        self.size_bytes += size_bytes

    def take(self) -> pa.RecordBatch:
        """Return what was added, at least one message, as one record batch; begin anew."""
        runs, messages = self._runs, self._messages
        self._runs, self._messages, self.size_bytes = [], [], 0
        arrays = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _topics(runs, len(messages)),
            _partitions(runs, len(messages)),
            pa.array(list(map(Message.offset, messages)), pa.int64()),
            *_timestamps(messages),
        ]
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)
        arrays.append(pa.array(list(map(_headers, messages)), HEADERS))
        return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA_WITH_HEADERS)


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


def _timestamps(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """Return the columns timestamp and timestampType, with values as Java consumers have them."""
    types, times_ms = zip(*map(Message.timestamp, messages), strict=True)
    if _NOT_AVAILABLE in types:
        times_ms = tuple(
            NO_TIMESTAMP_MS if kind == _NOT_AVAILABLE else time_ms
            for kind, time_ms in zip(types, times_ms, strict=True)
        )
    # The way over integers avoids a datetime for each row.
    times = pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    if min(types) == max(types):
        return times, pa.repeat(pa.scalar(types[0] - 1, pa.int32()), len(messages))
    return times, pa.array([kind - 1 for kind in types], pa.int32())


def _headers(message: Message) -> list[tuple[str, Any]] | None:
    # Spark's Kafka source has null, not an empty list, where a record has no headers.
    headers: list[tuple[str, Any]] | None = message.headers()  # type: ignore[assignment]
    return headers or None
