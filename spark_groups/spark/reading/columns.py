"""The columns of Spark's Kafka source, in Spark's words."""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
"""Exactly those of the source `kafka`."""
HEADER_COLUMN: Final = "headers array<struct<key: string, value: binary>>"

RANGE_COLUMNS: Final = (
    "topic string, partition int, fromOffset bigint, untilOffset bigint, topicId string"
)
"""The columns of `emit=ranges`; the first four are those of its own `OffsetRange`."""


def columns(*, include_headers: bool) -> str:
    """Return the source's schema as Spark's DDL.

    Args:
        include_headers: Whether there is a column of headers.
    """
    return f"{COLUMNS}, {HEADER_COLUMN}" if include_headers else COLUMNS
