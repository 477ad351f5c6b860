"""What a load asks for travels to every process, and is unpacked only where it is wanted."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from spark_groups.errors import OptionsError
from spark_groups.spark.options.packed import RANGE_COLUMNS, Load, columns
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS
from spark_groups.spark.source.source import KafkaGroupBacklogReader, KafkaGroupStreamReader

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "g",
    "subscribe": "t",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="alice" password="a-secret";'
    ),
}
NOT_FOR_ALL = (
    *("confluent_kafka", "http.client", "llvmlite", "numba", "platformdirs", "pydantic", "re2"),
    *("spark_groups.group.client", "spark_groups.group.member.member", "spark_groups.observation"),
    *("spark_groups.group.ledger.ledger", "spark_groups.wire.connection"),
)
SHOW_IMPORTED = f"print([each for each in {NOT_FOR_ALL} if each in sys.modules])"


def imported(code: str, pickled: bytes = b"") -> str:
    """Run code in a process of its own, and return which of `NOT_FOR_ALL` it has imported."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; {SHOW_IMPORTED}"],
        input=pickled,
        capture_output=True,
        check=True,
    ).stdout.decode()


def test_options_come_back_as_they_were_checked() -> None:
    travelled = pickle.loads(pickle.dumps(Load.of(GIVEN)))
    assert travelled.options() == SourceOptions.of(GIVEN)
    assert travelled.range_settings == SourceOptions.of(GIVEN).range_settings()


def test_columns_are_those_that_were_asked_for() -> None:
    with_headers = Load.of({**GIVEN, "includeHeaders": "true"})
    assert with_headers.columns == columns(include_headers=True)
    ranges = Load.of({**GIVEN, "emit": "ranges"})
    assert (ranges.columns, ranges.emits_ranges) == (RANGE_COLUMNS, True)


def test_wrong_options_are_refused_before_they_travel() -> None:
    with pytest.raises(OptionsError, match="did you mean startingOffsets"):
        Load.of({**GIVEN, "startingOffset": "earliest"})


def test_secrets_are_not_shown() -> None:
    assert "a-secret" not in repr(Load.of(GIVEN))


@pytest.mark.parametrize("kind", [KafkaGroupStreamReader, KafkaGroupBacklogReader])
def test_task_imports_no_options_and_no_member(
    kind: type[KafkaGroupStreamReader] | type[KafkaGroupBacklogReader],
) -> None:
    reader = pickle.dumps(kind(Load.of(GIVEN)))
    assert imported("import pickle; pickle.load(sys.stdin.buffer)", reader) == "[]\n"


def test_options_are_unpacked_without_what_only_the_member_needs() -> None:
    reader = pickle.dumps(KafkaGroupStreamReader(Load.of(GIVEN)))
    assert imported("import pickle; pickle.load(sys.stdin.buffer)._options", reader) == "[]\n"


def test_sources_are_created_without_what_they_need_later() -> None:
    created = "from pyspark_kafka_group import DefaultSource; DefaultSource({}).schema()"
    assert imported(created.format(GIVEN)) == "[]\n"
    state = "from pyspark_kafka_group_state import DefaultSource; DefaultSource({}).schema()"
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    assert imported(state.format(servers)) == "[]\n"


@pytest.mark.parametrize("module", ["pyspark_kafka_group", "pyspark_kafka_group_state"])
def test_sources_are_found_without_what_they_need_later(module: str) -> None:
    assert imported(f"import {module}") == "[]\n"


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
