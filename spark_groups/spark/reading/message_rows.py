"""Messages of librdkafka as Arrow record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Message

from spark_groups.spark.reading.rows import HEADERS, ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS, TIMESTAMP

# librdkafka counts the types of timestamps from 0 = none; Kafka's Java classes from -1 = none.
_NOT_AVAILABLE: Final = 0
NO_TIMESTAMP_MS: Final = -1


class RowBuffer:
    """Messages on their way into one record batch.

    Args:
        include_headers: Whether the batch has a column of headers.
    """

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
            topic: Name of the topic.
            topic_partition: Index of its partition.
            messages: The messages; none of them an error.
            size_bytes: About how many bytes they hold.
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
