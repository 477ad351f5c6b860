"""Rows of all sorts, and those of both readers, side by side."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.types import OffsetRange, TopicId
from spark_groups.wire.cluster import Cluster
from workshop.parts.brokers import Row

ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


def topic_ids(settings: RangeSettings, topics: Iterable[str]) -> dict[str, TopicId]:
    """Return the ids that topics have."""
    with Cluster(settings.bootstrap_servers, security=settings.security) as cluster:
        known = cluster.topics(topics).topics
    return {each.topic.name: topic_id for topic_id, each in known.items()}


def rows_of_all_sorts(chance: random.Random, count: int, largest: int = 300) -> Iterator[Row]:
    """Return rows of all sorts, for two partitions."""

    def octets() -> bytes:
        # Half of it repeats itself, so that it can be compressed.
        size = chance.choice((0, 1, 63, 64, 127, 128, chance.randrange(largest)))
        return chance.randbytes(size // 2) + b"a" * (size - size // 2)

    for index in range(count):
        headers = ()
        if chance.random() < 0.2:
            names = ("", "h", "naïve", "x" * 200)
            headers = tuple(
                (chance.choice(names), chance.choice((None, b"", octets())))
                for _ in range(chance.randrange(1, 5))
            )
        yield Row(
            value=None if chance.random() < 0.1 else octets(),
            key=None if chance.random() < 0.2 else octets(),
            partition=index % 2,
            timestamp_ms=chance.choice((None, 1, 2**40 + index)),
            headers=headers,
        )


def table_of(settings: RangeSettings, ranges: Iterable[OffsetRange], **changes: object) -> pa.Table:
    """Read ranges, and return the rows in the order of their offsets."""
    changed = replace(settings, include_headers=True, **changes)  # type: ignore[arg-type]
    batches = list(read_ranges(changed, ranges))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches).sort_by(ORDER) if batches else pa.table({})


def same_rows(
    settings: RangeSettings, ranges: Iterable[OffsetRange], **changes: object
) -> pa.Table:
    """Read ranges by both readers, and return the rows, which have to be the same."""
    ranges = list(ranges)
    fast = table_of(settings, ranges, reader=ReaderChoice.FAST, **changes)
    oracle = table_of(settings, ranges, reader=ReaderChoice.LIBRDKAFKA, **changes)
    assert fast.schema == oracle.schema
    assert fast.equals(oracle), f"{fast.num_rows} rows and {oracle.num_rows} are not the same"
    return fast
