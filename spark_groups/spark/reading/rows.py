"""Arrow schemas of rows, and the rows of `emit=ranges`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from spark_groups.types import OffsetRange, topic_id_text

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

_RANGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("fromOffset", pa.int64()),
        ("untilOffset", pa.int64()),
        ("topicId", pa.string()),
    ]
)


def range_rows(ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    """Return ranges as one record batch, with `untilOffset` exclusive."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([offset_range.topic for offset_range in ranges], pa.string()),
            pa.array([offset_range.partition for offset_range in ranges], pa.int32()),
            pa.array([offset_range.from_offset for offset_range in ranges], pa.int64()),
            pa.array([offset_range.until_offset for offset_range in ranges], pa.int64()),
            pa.array(
                [topic_id_text(offset_range.topic_id) for offset_range in ranges], pa.string()
            ),
        ],
        schema=_RANGE_SCHEMA,
    )
