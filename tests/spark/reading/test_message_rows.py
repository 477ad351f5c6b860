"""Rows of librdkafka's messages; tests/records compares them with those of the fast reader."""

from __future__ import annotations

from spark_groups.spark.reading.message_rows import RowBuffer


def test_buffer_is_empty_at_first() -> None:
    buffer = RowBuffer(include_headers=False)
    assert (len(buffer), buffer.size_bytes) == (0, 0)
