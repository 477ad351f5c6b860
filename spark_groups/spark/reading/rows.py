"""The columns of Spark's Kafka source, in Arrow's words."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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
