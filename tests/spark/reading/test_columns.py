"""The columns: the same in Spark's words and in Arrow's."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from spark_groups.spark.reading.columns import columns
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS

# Spark 4.2's KafkaRecordToRowConverter.
KAFKA_SOURCE = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS = "array<struct<key:string,value:binary>>"
CASES = [(False, ROW_SCHEMA), (True, ROW_SCHEMA_WITH_HEADERS)]


@pytest.mark.parametrize(("include_headers", "arrow"), CASES)
def test_columns_are_those_of_the_kafka_source(include_headers: bool, arrow: pa.Schema) -> None:
    expected = KAFKA_SOURCE | ({"headers": HEADERS} if include_headers else {})
    of_arrow = from_arrow_schema(arrow, prefer_timestamp_ntz=False)
    assert {each.name: each.dataType.simpleString() for each in of_arrow} == expected
    ddl = ", ".join(f"{name} {kind}" for name, kind in expected.items())
    assert re.sub(r"(?<=[:,]) ", "", columns(include_headers=include_headers)) == re.sub(
        r"(?<=[:,]) ", "", ddl
    )
