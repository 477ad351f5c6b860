"""Reads offset ranges over the package's own connections, decoded directly into Arrow columns.

`memory_bytes` is divided into shares: the response buffer, a decompressed batch, and the columns of
up to three record batches, because one record may fill a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from spark_groups.errors import SparkGroupsError
from spark_groups.records.arrow_batches import AbortedTransaction, RecordDecoder, next_fetch_offset
from spark_groups.records.misfits import warn_of_misfits
from spark_groups.spark.options.librdkafka_options import FETCH_DEFAULTS, THE_SYSTEMS
from spark_groups.spark.options.range_settings import (
    RangeSettings,
    UnreadableTimestamp,
    lose,
    rounds,
)
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import OffsetRange, RangeCursor, TopicPartition
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.fetch.fetch_messages import FetchCursor, FetchSettings
from spark_groups.wire.fetch.fetcher import Fetcher
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.transport import FrameBuffer, FrameTooLargeError

_RESPONSE_SHARE: Final = 8
_LARGEST_SHARE: Final = 5
_COLUMN_SHARE: Final = 32
_COLUMN_BYTES_MAX: Final = 16 * 1024 * 1024
_FRAME_SPARE_BYTES: Final = 1024 * 1024
"""Response bytes other than records."""
_WARM_BROKERS_MAX: Final = 32
_WARM_S: Final = 5.0
"""How long a warm-up looks topics up and connects to brokers."""


def read_ranges(
    settings: RangeSettings,
    ranges: Iterable[OffsetRange],
    *,
    cache: ConsumerCache[FastConsumer] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read all rows of ranges; see `reader.RangeReader`."""
    with (cache or FAST_CONSUMERS).borrow(settings) as consumer:
        for each in rounds(ranges):
            yield from consumer.read(each)
        yield from consumer.rest_of_rows()


def warm_up(
    settings: RangeSettings,
    topics: Sequence[str],
    *,
    cache: ConsumerCache[FastConsumer] | None = None,
) -> None:
    """Open the connections of a consumer, and load the types of compiled functions."""
    with (cache or FAST_CONSUMERS).borrow(settings) as consumer:
        consumer.warm_up(topics)


class FastConsumer:
    """Connections to a cluster, with the memory for its records."""

    def __init__(self, settings: RangeSettings) -> None:
        tuning = {**FETCH_DEFAULTS, **dict(settings.tuning)}
        memory_bytes = settings.memory_bytes
        response_bytes = memory_bytes // _RESPONSE_SHARE
        largest_bytes = memory_bytes // _LARGEST_SHARE
        self._settings = settings
        fetching = FetchSettings(
            read_committed=settings.read_committed,
            rack=settings.rack or "",
            min_bytes=int(tuning["fetch.min.bytes"]),
            max_wait_ms=int(tuning["fetch.wait.max.ms"]),
            max_bytes=min(int(tuning["fetch.max.bytes"]), response_bytes),
            partition_max_bytes=min(int(tuning["max.partition.fetch.bytes"]), response_bytes),
            request_timeout_s=settings.request_timeout_s,
            poll_timeout_s=settings.poll_timeout_s,
            identity=settings.identity,
        )
        identity = ClusterIdentity(settings.cluster_id)
        self._cluster = Cluster(
            settings.bootstrap_servers,
            client_id=settings.client_id,
            security=settings.security,
            timeouts=settings.timeouts,
            identity=identity,
        )
        buffer_bytes = tuning.get("socket.receive.buffer.bytes", THE_SYSTEMS)
        self._pool = ConnectionPool(
            parse_bootstrap_servers(settings.bootstrap_servers),
            client_id=settings.client_id,
            security=settings.security,
            timeouts=settings.timeouts,
            identity=identity,
            max_frame_bytes=largest_bytes + _FRAME_SPARE_BYTES,
            receive_buffer_bytes=None if buffer_bytes == THE_SYSTEMS else int(buffer_bytes),
        )
        self._fetcher = Fetcher(
            self._cluster,
            self._pool,
            FrameBuffer(response_bytes + _FRAME_SPARE_BYTES),
            fetching,
            next_offset=next_fetch_offset,
            lose=partial(lose, settings),
        )
        self._decoder = RecordDecoder(
            ROW_SCHEMA_WITH_HEADERS if settings.include_headers else ROW_SCHEMA,
            bytes_max=min(_COLUMN_BYTES_MAX, memory_bytes // _COLUMN_SHARE),
            batch_bytes_max=min(largest_bytes, 2**31 - 1),
            check_crcs=tuning["check.crcs"] == "true",
            null_timestamps=settings.on_unreadable_timestamp is UnreadableTimestamp.NULL,
        )

    def warm_up(self, topics: Sequence[str]) -> None:
        """Connect to the leaders of topics, or to all brokers, and decode an empty response."""
        nothing = RangeCursor(TopicPartition("", 0), 0, 0)
        for _ in self._decoder.decode(bytearray(), nothing):
            pass
        deadline = time.monotonic() + _WARM_S
        known = self._cluster.topics(topics, deadline)
        self._pool.learn(known.nodes.values())
        leading = {
            leader.node_id for topic in known.topics.values() for leader in topic.leaders.values()
        }
        wanted = sorted(known.nodes.keys() & (leading or known.nodes.keys()))
        for node_id in wanted[:_WARM_BROKERS_MAX]:
            self._pool.to(known.nodes[node_id], deadline)

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Read ranges, at most one per partition; `rest_of_rows` returns the last rows."""
        try:
            for each in self._fetcher.fetch(map(FetchCursor.of, ranges)):
                yield from self._decoder.decode(
                    each.records,
                    RangeCursor(each.topic_partition, each.from_offset, each.until_offset),
                    [AbortedTransaction(*transaction) for transaction in each.aborted],
                )
                # Free a frame that exceeds the buffer before the next one arrives.
                del each
        except FrameTooLargeError as error:
            raise SparkGroupsError(
                f"{error}: a batch of records exceeds the memory of a task: raise maxMemoryPerTask,"
                f" which is {self._settings.memory_bytes}, to five times the size of the frame"
            ) from error

    def rest_of_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that do not fill a record batch, and log timestamps that became null."""
        warn_of_misfits(self._decoder.misfits.take())
        rows = self._decoder.take()
        if rows is not None:
            yield rows

    def rest(self) -> None:
        """Do nothing: no request is in flight."""

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._cluster.close()


FAST_CONSUMERS: Final = ConsumerCache(FastConsumer)
