"""Reads offset ranges with confluent-kafka, each exactly to its end.

Consumers use `assign()`, join no group and commit nothing. A range may hold fewer records than
offsets: compaction, aborted transactions and control records leave gaps, even at its end. So a
range ends when a record at or past its end arrives, or at the end of the partition; never by count.
`gaps` compares the gaps with the log.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from spark_groups.errors import AccessError, BrokerUnreachableError, SparkGroupsError
from spark_groups.protocol.rights import remedy_of
from spark_groups.spark.options.range_settings import RangeSettings, lose, rounds
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.fetch_tuning import FETCH_DEFAULTS
from spark_groups.spark.reading.gaps import GAPS_MAX, USE_FAST, Cursor, GapCheck, unread
from spark_groups.spark.reading.rows import HEADERS, ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS, TIMESTAMP
from spark_groups.types import (
    OffsetRange,
    TopicId,
    TopicPartition,
    parse_topic_id,
    topic_id_text,
)
from spark_groups.wire.fetch.batches import Passed

_log = logging.getLogger(__name__)

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
TAKE_ROWS: Final = 2_000
"""Messages per call; more are slower."""
_POLL_S: Final = 0.5
_TOPICS_S: Final = 5.0
"""How long a broker with stale metadata may return other topic IDs than planned."""
_DESCRIBE_S: Final = 5.0
"""How long one broker may take to describe topics before another one is asked; then twice this."""
_ASK_AGAIN_S: Final = 0.2
_STALLED_S: Final = 5.0
"""How long to look in the log for a record that librdkafka did not return in time."""
_SAMPLE_EVERY: Final = 16
"""One in so many messages is sampled for the row size."""

_FATAL_READS: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
)
_UNREADABLE: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
"""Errors with which librdkafka asks for the same batch again, for ever."""
_GONE: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
# librdkafka counts the types of timestamps from 0 = none; Kafka's Java classes from -1 = none.
_NOT_AVAILABLE: Final = 0
NO_TIMESTAMP_MS: Final = -1
_DAY_MS: Final = 86_400_000
_LOOK_S: Final = 0.1
"""Interval for checking whether a broker refused the connection."""
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_LEADERLESS: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors of brokers while a partition gets another leader, or they do not know it yet."""
_BEHIND: Final = _LEADERLESS | _GONE
"""Errors while brokers, or the metadata of librdkafka, have not caught up."""
_UNREACHABLE: Final = _BEHIND | {
    KafkaError._DESTROY_BROKER,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}


def librdkafka_settings(settings: RangeSettings) -> dict[str, Any]:
    """Return the librdkafka configuration of a consumer that reads ranges."""
    configuration: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "client.id": settings.client_id,
        "group.id": settings.group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Report missing offsets as an error, so that failOnDataLoss decides.
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if settings.read_committed else "read_uncommitted",
        # An idle consumer is not polled, and is not a group member.
        "max.poll.interval.ms": _DAY_MS,
        # By default librdkafka pauses a partition for a second when its queue is full.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 100_000,
        "log_level": 3,
    }
    if settings.rack is not None:
        configuration["client.rack"] = settings.rack
    configuration |= settings.security.librdkafka_settings()
    return configuration | dict(FETCH_DEFAULTS) | dict(settings.tuning)


class RangeConsumer:
    """A consumer, and the last error that it reported."""

    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.last_error: str | None = None
        self._refusal: str | None = None
        self.fetcher = Consumer(
            librdkafka_settings(settings) | {"error_cb": self._note_error}, logger=_log
        )
        self._admin: AdminClient | None = None
        self.gaps = GapCheck(settings)
        self._known_topics: set[str] = set()

    def look_up(self, topics: Iterable[str]) -> None:
        """Fetch metadata of new topics, which librdkafka would do only a second later.

        Raises:
            BrokerUnreachableError: No broker responded within `request_timeout_s`.
        """
        for topic in sorted(set(topics) - self._known_topics):
            try:
                self.fetcher.list_topics(topic, timeout=self.settings.request_timeout_s)
            except KafkaException as error:
                raise self.failure(error.args[0], f"looking up the topic {topic}") from error
            self._known_topics.add(topic)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """Return the current IDs of the topics that exist.

        Raises:
            BrokerUnreachableError: No broker responded within `request_timeout_s`.
            AccessError: TLS or authentication failed.
        """
        deadline = time.monotonic() + self.settings.request_timeout_s
        attempt_s = _DESCRIBE_S
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                return self._described(topics, min(attempt_s, remaining_s))
            except BrokerUnreachableError:
                if time.monotonic() + _ASK_AGAIN_S >= deadline:
                    raise
                # An admin client asks only the broker that it takes for the controller. If that
                # one is down, the client waits for it, although the others run: a new client
                # asks another one.
                self._admin = None
                attempt_s *= 2
                time.sleep(_ASK_AGAIN_S)

    def _described(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicId]:
        if self._admin is None:
            configuration: dict[str, Any] = self.settings.security.librdkafka_settings()
            self._admin = AdminClient(
                configuration
                | {
                    "bootstrap.servers": ",".join(self.settings.bootstrap_servers),
                    "client.id": self.settings.client_id,
                    "log_level": 3,
                    "error_cb": self._note_error,
                },
                logger=_log,
            )
        described = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=timeout_s
        )
        self._await(self._admin, described.values())
        found = {topic: self._topic_id(topic, future) for topic, future in described.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    def _await(self, admin: AdminClient, futures: Collection[Future[Any]]) -> None:
        """Wait for responses; raise if authentication failed, which librdkafka retries."""
        while wait(futures, timeout=_LOOK_S).not_done:
            admin.poll(0)
            if self._refusal is not None:
                servers = ",".join(self.settings.bootstrap_servers)
                raise AccessError(f"brokers of {servers} refuse this executor: {self._refusal}")

    def _topic_id(self, topic: str, described: Future[Any]) -> TopicId | None:
        try:
            return parse_topic_id(str(described.result().topic_id))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self.failure(error.args[0], f"describing the topic {topic}") from error

    def failure(self, error: KafkaError, doing: str) -> Exception:
        """Return the exception for an error of librdkafka."""
        if error.code() in _UNREACHABLE:
            return self.unreachable(f"{doing} within {self.settings.request_timeout_s:g} s")
        return KafkaException(error)

    def unreachable(self, what: str) -> BrokerUnreachableError:
        """Return the error for a timeout."""
        servers = ",".join(self.settings.bootstrap_servers)
        last = f"; librdkafka reports: {self.last_error}" if self.last_error else ""
        return BrokerUnreachableError(f"timeout when {what}, from brokers of {servers}{last}")

    def rest(self) -> None:
        """Stop fetching until the next task."""
        self.fetcher.unassign()
        # If brokers still refuse this executor, librdkafka reports so again.
        self.last_error = self._refusal = None

    def close(self) -> None:
        """Close the connections."""
        self.fetcher.close()
        self.gaps.close()
        # An admin client has no close(); its threads end with its last reference.
        self._admin = None

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        if error.code() in _REFUSED:
            self._refusal = self.last_error


CONSUMERS: Final = ConsumerCache(RangeConsumer)


def read_ranges(
    settings: RangeSettings,
    ranges: Iterable[OffsetRange],
    *,
    cache: ConsumerCache[RangeConsumer] = CONSUMERS,
) -> Iterator[pa.RecordBatch]:
    """Read all rows of ranges, which must not overlap, in offset order.

    Raises:
        BrokerUnreachableError: No record arrived for `poll_timeout_s`.
        DataLossError: Offsets no longer exist, and `failOnDataLoss` is true.
    """
    collecting = gc.isenabled()
    # Thousands of new messages would trigger collections that free nothing.
    gc.disable()
    try:
        with cache.borrow(settings) as consumer:
            existing = _existing(consumer, ranges)
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
    """Look up topics, which opens connections; librdkafka connects to leaders when it fetches.

    Raises:
        BrokerUnreachableError: No broker responded within `request_timeout_s`.
        AccessError: TLS or authentication failed.
    """
    # Arrow imports pandas where Python values become arrays.
    pa.array([], pa.int64())
    with cache.borrow(settings) as consumer:
        if topics:
            consumer.look_up(consumer.topic_ids(topics))


def _existing(consumer: RangeConsumer, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges whose topic still has the planned ID."""
    wanted = sorted(each for each in ranges if len(each))
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
            if is_over or all(ids.get(topic) == topic_id for topic, topic_id in planned):
                return ids
        time.sleep(_ASK_AGAIN_S)


class _Round:
    """One assignment of ranges, at most one per partition, read to its end."""

    def __init__(self, consumer: RangeConsumer, ranges: Sequence[OffsetRange]) -> None:
        self._consumer = consumer
        self._settings = consumer.settings
        self._topic_ids = {each.topic: each.topic_id for each in ranges}
        self._cursors = {each.topic_partition: Cursor.of(each) for each in ranges}
        """The unfinished ranges."""
        self._single = next(iter(self._cursors)) if len(self._cursors) == 1 else None
        self._buffer = RowBuffer(include_headers=self._settings.include_headers)
        self._row_bytes = BATCH_BYTES // TAKE_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._assign()
        deadline = time.monotonic() + self._settings.poll_timeout_s
        while self._cursors:
            messages = self._take(deadline)
            events: list[Message] = []
            if any(map(Message.error, messages)):
                events = [each for each in messages if each.error() is not None]
                messages = [each for each in messages if each.error() is None]
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

    def _assign(self) -> None:
        positions = [_position(cursor) for cursor in self._cursors.values()]
        self._consumer.fetcher.assign(positions)

    def _take(self, deadline: float) -> list[Message]:
        """Return messages and events; none only after the deadline."""
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
                topic_partition.topic,
                topic_partition.partition,
                run,
                self._row_bytes * len(run),
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
                if error.code() in _GONE:
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
            time.sleep(_ASK_AGAIN_S)
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
        """
        deadline = time.monotonic() + self._settings.request_timeout_s
        while True:
            left_s = max(_ASK_AGAIN_S, deadline - time.monotonic())
            try:
                return range(
                    *self._consumer.fetcher.get_watermark_offsets(_position(cursor), timeout=left_s)
                )
            except KafkaException as error:
                is_behind = error.args[0].code() in _BEHIND
                if not is_behind or time.monotonic() + _ASK_AGAIN_S >= deadline:
                    raise
                self._consumer.last_error = f"{cursor}: {error.args[0].str()}"
            time.sleep(_ASK_AGAIN_S)

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
    """Messages for one record batch."""

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
        """Add messages of one partition, in offset order.

        Args:
            size_bytes: Approximate.
        """
        self._runs.append((topic, topic_partition, len(messages)))
        self._messages += messages
        self.size_bytes += size_bytes

    def take(self) -> pa.RecordBatch:
        """Return the added messages, at least one, as one record batch, and clear the buffer."""
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
    """Return the columns timestamp and timestampType, with the values of Java consumers."""
    types, times_ms = zip(*map(Message.timestamp, messages), strict=True)
    if _NOT_AVAILABLE in types:
        times_ms = tuple(
            NO_TIMESTAMP_MS if kind == _NOT_AVAILABLE else time_ms
            for kind, time_ms in zip(types, times_ms, strict=True)
        )
    # Casting integers avoids a datetime per row.
    times = pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    if min(types) == max(types):
        return times, pa.repeat(pa.scalar(types[0] - 1, pa.int32()), len(messages))
    return times, pa.array([kind - 1 for kind in types], pa.int32())


def _headers(message: Message) -> list[tuple[str, Any]] | None:
    # Like Spark's Kafka source: null, not an empty list, for a record without headers.
    headers: list[tuple[str, Any]] | None = message.headers()  # type: ignore[assignment]
    return headers or None
