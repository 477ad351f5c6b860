"""Records that a transform or a table cannot take: they are named, left out, or dead letters."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, udf

import spark_groups
from spark_groups import AtLast, Fate, Recirculate, SkipOrDeadLetter
from spark_groups.errors import OptionsError
from spark_groups.spark.processing.letters import ERROR, origin_of
from tests.spark.processing.topics import records_in
from tests.spark.tables.every_table_setup import place_of
from tests.spark.tables.places import Database, SqlitePlace
from tests.spark.tables.write_setup import PARTITIONS, ROWS, PlaceQuery, expected
from workshop.parts.brokers import Row, create_topic, produce

on_spark = [pytest.mark.broker, pytest.mark.spark]
BAD = (b"none", b"cancelled", b"1e9")
"""Values that are no integers; one has a word of Spark's errors."""


def number(rows: DataFrame) -> DataFrame:
    """Cast values, as SQL does."""
    return rows.select("value", col("value").cast("string").cast("int").alias("number"))


def number_by_python(rows: DataFrame) -> DataFrame:
    """Convert values with a function of Python that Spark calls."""
    parse = udf(lambda value: int(bytes(value)), "int")
    return rows.select("value", parse("value").alias("number"))


def number_by_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert values in tasks."""
    numbers = pa.array([int(each) for each in batch["value"].to_pylist()], pa.int32())
    return pa.RecordBatch.from_arrays([batch["value"], numbers], names=["value", "number"])


WAYS = {
    "records": (number, "CAST_INVALID_INPUT"),
    "records-python": (number_by_python, "ValueError: invalid literal for int"),
    "ranges": (number_by_arrow, "ValueError: invalid literal for int"),
}


@pytest.fixture
def query(
    query_of: Callable[..., PlaceQuery], tmp_path: Path, request: pytest.FixtureRequest
) -> PlaceQuery:
    """A query on a topic with rows, and a few that its transform cannot take.

    The parameter is the kind of table and the way of reading and changing.
    """
    kind, _, way = request.param.partition("-")
    place = place_of(kind, request, tmp_path)
    made = query_of(PlaceQuery, way.partition("-")[0], place, includeHeaders="true")
    made.transform, _ = WAYS[way]
    bad = [
        Row(value, key=b"k", partition=index % PARTITIONS, headers=(("trace", value),))
        for index, value in enumerate(BAD)
    ]
    produce(made.kafka.bootstrap_servers, made.topic, bad)
    return made


def letters(query: PlaceQuery) -> str:
    return f"{query.topic}.{query.group_id}.dead-letter"


def in_ways(*parameters: Any) -> Callable[[Any], Any]:
    def marked(test: Any) -> Any:
        test = pytest.mark.parametrize("query", parameters, indirect=True)(test)
        for mark in on_spark:
            test = mark(test)
        return test

    return marked


def in_every_way(test: Any) -> Any:
    by_python = pytest.param("sqlite-records-python", marks=pytest.mark.long)
    return in_ways("sqlite-records", by_python, "sqlite-ranges")(test)


@in_every_way
def test_first_record_that_cannot_be_taken_is_named_in_the_error(
    query: PlaceQuery, request: pytest.FixtureRequest
) -> None:
    way = request.node.callspec.params["query"].partition("-")[2]
    failure = query.run()
    named = re.search(rf"{re.escape(query.topic)}-(\d) offset {ROWS // PARTITIONS}\b", failure)
    assert named, failure
    assert WAYS[way][1] in failure
    assert "on_error" in failure
    # The error of the task, or of the job, around it tells nothing more.
    assert "PythonException" not in failure


@in_ways("sqlite-records", "delta-ranges")
def test_skipped_records_are_counted_and_the_others_are_in_the_table(
    query: PlaceQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query.on_error = SkipOrDeadLetter(at_last=AtLast.SKIP)
    writer = query.writer()
    with caplog.at_level(logging.WARNING):
        assert query.run(writer) == ""
    assert query.values() == expected(ROWS)
    assert writer.totals == {Fate.SKIPPED: len(BAD)}
    where = f"1 of {query.topic}-0 skipped (offset {ROWS // PARTITIONS})"
    assert any(where in each for each in caplog.messages)
    assert query.committed() == dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS + 1)


@in_every_way
def test_dead_letters_say_everything_and_are_written_once(
    query: PlaceQuery, request: pytest.FixtureRequest
) -> None:
    way = request.node.callspec.params["query"].partition("-")[2]
    servers = query.kafka.bootstrap_servers
    create_topic(servers, letters(query), 1)
    query.on_error = SkipOrDeadLetter()
    writer = query.writer()
    assert query.run(writer) == ""
    # Another query finds the batch in the table, and writes no letter again.
    assert query.run(checkpoint="another") == ""
    assert query.values() == expected(ROWS)
    assert writer.totals == {Fate.DEAD_LETTERED: len(BAD)}
    found = {each.value: each for each in records_in(servers, letters(query))}
    assert set(found) == set(BAD)
    assert len(records_in(servers, letters(query))) == len(BAD)
    for index, value in enumerate(BAD):
        letter, origin = found[value], origin_of(found[value])
        assert (letter.key, letter.headers[0]) == (b"k", ("trace", value))
        place = (query.topic, index % PARTITIONS, ROWS // PARTITIONS)
        assert (origin.topic, origin.partition, origin.offset) == place
        assert origin.group_id == query.group_id
        assert WAYS[way][1].encode() in (dict(letter.headers)[ERROR] or b"")


@in_ways("sqlite-ranges")
def test_driver_that_dies_between_letters_and_commit_repeats_letters_but_no_row(
    query: PlaceQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = query.kafka.bootstrap_servers
    create_topic(servers, letters(query), 1)
    query.on_error = SkipOrDeadLetter()
    table: Any = query.place.fenced()

    def commit(_: object, pieces: Any, *given: object) -> None:
        raise RuntimeError("the driver dies here")

    writer = spark_groups.write_table(table, query.transform, on_error=query.on_error)
    real = table.commit
    monkeypatch.setattr(
        table, "commit", lambda *given: commit(*given) if given[1] else real(*given)
    )
    # All records are in one batch, so that it has letters.
    query.options["maxOffsetsPerTrigger"] = "1000"
    assert "the driver dies here" in query.run(writer)
    assert query.run() == ""
    assert query.values() == expected(ROWS)
    found = Counter(each.value for each in records_in(servers, letters(query)))
    assert found == dict.fromkeys(BAD, 2)


@in_ways("sqlite-ranges")
def test_database_that_keeps_letters_has_each_once_and_needs_no_topic(query: PlaceQuery) -> None:
    assert isinstance(query.place, SqlitePlace)
    path, on_error = query.place.path, SkipOrDeadLetter()
    table = spark_groups.sqlite_table(path, "rows", dead_letters="letters")
    writer = spark_groups.write_table(table, query.transform, on_error=on_error)
    writer.check(query.source())
    assert query.run(writer) == ""
    assert query.run(writer, checkpoint="another") == ""
    assert query.values() == expected(ROWS)
    letters = query.place.run("SELECT topic, partition, offset, value FROM letters")
    assert sorted(letters) == [
        (query.topic, index % PARTITIONS, ROWS // PARTITIONS, value)
        for index, value in enumerate(BAD)
    ]


@in_ways("sqlite-ranges")
def test_missing_dead_letter_topic_fails_the_batch_before_a_row_is_read(query: PlaceQuery) -> None:
    query.on_error = SkipOrDeadLetter()
    assert f"there is no topic {letters(query)}" in query.run()
    assert query.place.staged() == []


@in_ways("sqlite-records")
def test_values_that_the_table_cannot_have_are_left_out_as_well(query: PlaceQuery) -> None:
    assert isinstance(query.place, Database)
    query.place.run("CREATE TABLE rows (value BLOB, number INTEGER NOT NULL)")
    query.transform = lambda rows: rows.selectExpr(
        "value", "try_cast(CAST(value AS STRING) AS INT) AS number"
    )
    query.on_error = SkipOrDeadLetter(at_last=AtLast.SKIP)
    writer = query.writer()
    assert query.run(writer) == ""
    assert query.values() == expected(ROWS)
    assert writer.totals == {Fate.SKIPPED: len(BAD)}


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        (Recirculate(), "on_error is Recirculate, but a table takes a record now or never"),
        (SkipOrDeadLetter(record_deadline_s=1), "on_error has a record_deadline_s"),
    ],
)
def test_strategy_that_tables_do_not_have_is_refused_at_once(
    tmp_path: Path, strategy: Any, problem: str
) -> None:
    table = spark_groups.sqlite_table(tmp_path / "rows.db", "rows")
    with pytest.raises(OptionsError, match=problem):
        spark_groups.write_table(table, on_error=strategy)
