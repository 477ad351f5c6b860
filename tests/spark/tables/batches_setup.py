"""Ranges of one topic, and their rows, of which tests of tables make batches."""

from __future__ import annotations

import uuid

import pyarrow as pa

from spark_groups.fence.entries import FenceKey
from spark_groups.types import OffsetRange

GROUP = "flights"
TOPIC = uuid.UUID(int=7)
KEY = FenceKey(GROUP, TOPIC, 0)
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
AFTER_PYTHON = 10**18
"""As a time in microseconds, this is in the year 33658."""


def reads(from_offset: int, until_offset: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TOPIC, "departures", partition, from_offset, until_offset)


def rows(each: OffsetRange, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the records of a range; each value is `partition-offset`."""
    offsets = range(each.from_offset, each.until_offset)
    columns = {
        "topic": [each.topic] * len(each),
        "partition": [each.partition] * len(each),
        "offset": list(offsets),
        "value": [f"{each.partition}-{offset}".encode() for offset in offsets],
        "timestamp": list(offsets),
        "carrier": ["AA"] * len(each),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)
