"""The columns of Spark's Kafka source, in Spark's words and in Arrow's."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
"""The columns in Spark's words; exactly those of the source `kafka`."""
HEADER_COLUMN: Final = "headers array<struct<key: string, value: binary>>"

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FIELDS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP),
    ("timestampType", pa.int32()),
)
ROW_SCHEMA: Final = pa.schema(_FIELDS)
ROW_SCHEMA_WITH_HEADERS: Final = pa.schema((*_FIELDS, ("headers", HEADERS)))


def columns(*, include_headers: bool) -> str:
    """Return the source's schema as Spark's DDL.

    Args:
        include_headers: Whether there is a column of headers.
    """
    return f"{COLUMNS}, {HEADER_COLUMN}" if include_headers else COLUMNS
