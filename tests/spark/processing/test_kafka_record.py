"""Rows as records, in both forms that readers give them."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.processing.kafka_record import Record, record_rows, records_of
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS

ROW = {
    "key": None,
    "value": b"v",
    "topic": "flights",
    "partition": 3,
    "offset": 2**40,
    "timestamp": datetime(2013, 1, 1, 5, 17, tzinfo=timezone.utc),
    "timestampType": 0,
}
HEADERS = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
RECORD = Record(None, b"v", "flights", 3, 2**40, 1_357_017_420_000)


def test_rows_without_headers() -> None:
    batch = pa.RecordBatch.from_pylist([ROW, ROW], schema=ROW_SCHEMA)
    assert list(records_of([batch])) == [RECORD, RECORD]
    assert str(RECORD) == f"flights-3@{2**40}"


def test_rows_with_headers() -> None:
    rows = [{**ROW, "headers": HEADERS}, {**ROW, "headers": None}]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA_WITH_HEADERS)
    first, second = records_of([batch])
    assert first.headers == (("h", b"1"), ("h", None))
    assert second == RECORD


def test_rows_that_are_no_records_are_refused() -> None:
    class Columns:
        columns = ("key", "value", "topic")

    with pytest.raises(OptionsError, match="no column partition, offset, timestamp"):
        record_rows(Columns())  # type: ignore[arg-type]


def test_records_whose_values_are_decoded_are_refused() -> None:
    class Decoded:
        columns = ("key", "value", "topic", "partition", "offset", "timestamp")
        dtypes = (("key", "binary"), ("value", "struct<id:bigint>"))

    with pytest.raises(OptionsError, match=r"leave valueFormat out .*, and decode in the function"):
        record_rows(Decoded())  # type: ignore[arg-type]
