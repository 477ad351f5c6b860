"""Queries whose tasks decode Avro with a real registry, in both planes, over a schema change."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import count
from pyspark.sql.streaming.query import StreamingQuery

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.spark.control.listener import close_listeners
from spark_groups.spark.schemas.row_formats import UNDECODABLE
from tests.documents import ROOT, blocks_of, run_python
from tests.monitoring.scraping import free_port, scrape
from tests.spark.processing.topics import records_in
from tests.spark.queries import READ_S, GroupQuery
from tests.spark.tables.write_setup import TableQuery
from tests.spark.typed_setup import FIRST, SECOND, THIRD, Orders
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.messages import add_field, as_set, class_of, new_file
from workshop.parts.schema_registry import Registry
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def orders(registry: Registry, kafka: EmbeddedKafka, topic_name: str) -> Orders:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    return Orders(registry, kafka.bootstrap_servers, topic_name)


@dataclass
class ExpandedQuery(TableQuery):
    """A query that writes the fields of values into a Delta table."""

    def writer(self) -> spark_groups.TableWriter:
        table = spark_groups.delta_table(self.path)
        return spark_groups.write_table(table, expand="value", on_error=self.on_error)

    def ids(self) -> list[int]:
        """Return the ids of the orders in the table."""
        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            return []
        return sorted(self.table()["id"].to_pylist())


@pytest.fixture
def query_of(
    spark: SparkSession, kafka: EmbeddedKafka, orders: Orders, group_id: str, tmp_path: Path
) -> Callable[..., Any]:
    """Return a query of a class on the orders, with more options."""

    def made(kind: Callable[..., Any], **more: str) -> Any:
        avro = {"valueFormat": "avro", "schemaRegistryUrl": orders.registry.url}
        return kind(spark, kafka, group_id, orders.topic, tmp_path, {**avro, **more})

    return made


def test_rows_have_the_latest_schema_and_a_pinned_version_keeps_its_columns(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(FIRST, range(2))
    orders.produce(SECOND, range(2, 4))
    query: GroupQuery = query_of(GroupQuery)
    schema = query.source().schema["value"].dataType
    assert schema.simpleString() == "struct<id:bigint,amount:double,currency:string>"
    query.run_available()
    assert [row["value"] for row in query.rows()] == [
        {"id": 0, "amount": 0.5, "currency": "EUR"},
        {"id": 1, "amount": 0.5, "currency": "EUR"},
        {"id": 2, "amount": 0.5, "currency": "USD"},
        {"id": 3, "amount": 0.5, "currency": "USD"},
    ]
    orders.produce(THIRD, range(4, 5))
    pinned: GroupQuery = query_of(GroupQuery, valueSchemaVersion="1", keyFormat="string")
    assert pinned.source().select("key", "value.*").columns == ["key", "id", "note", "amount"]
    newest: GroupQuery = query_of(GroupQuery)
    newest.run_available()
    assert newest.rows()[-1]["value"] == {
        "id": 4,
        "amount": 0.5,
        "currency": "USD",
        "paid": True,
    }


def test_json_and_protobuf_become_structs_without_a_registry(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    file = new_file("proto3")
    file.message_type.add(name="Order")
    add_field(file.message_type[0], "id", "int64")
    message = class_of(file, "t.Order")(id=7)
    document = b'{"id": 7, "tags": ["a"], "at": "2026-01-02T03:04:05Z", "cost": 1.50}'
    produce(kafka.bootstrap_servers, topic_name, [Row(message.SerializeToString(), key=document)])
    rows = (
        spark.read.format("kafka-group")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic_name)
        .option("keyFormat", "json")
        .option("keySchema", "id int, tags array<string>, at timestamp, cost decimal(9,2)")
        .option("valueFormat", "protobuf")
        .option("valueSchema", base64.b64encode(as_set(file)).decode())
        .option("valueMessageName", "t.Order")
        .load()
    )
    (row,) = rows.selectExpr("key.*", "value.id AS number").toArrow().to_pylist()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert row == {"id": 7, "tags": ["a"], "at": at, "cost": Decimal("1.50"), "number": 7}


def test_load_names_a_registry_that_is_away(query_of: Callable[..., Any]) -> None:
    away = {"schemaRegistryUrl": "http://127.0.0.1:1", "kafka.default.api.timeout.ms": "2000"}
    with pytest.raises(AnalysisException, match=r"did not return version latest of subject"):
        query_of(GroupQuery, **away).source()


@pytest.mark.parametrize("emit", ["records", "ranges"])
def test_fields_of_values_become_the_columns_of_a_table(
    orders: Orders, query_of: Callable[..., Any], emit: str
) -> None:
    orders.produce(FIRST, range(2))
    orders.produce(SECOND, range(2, 4))
    query: ExpandedQuery = query_of(ExpandedQuery, emit=emit)
    stream, writer = query.source(), query.writer()
    writer.check(stream)
    assert query.run(writer, stream=stream) == ""
    assert query.table().to_pylist() == [
        {"id": each, "amount": 0.5, "currency": "EUR" if each < 2 else "USD"} for each in range(4)
    ]


def test_query_whose_registry_is_away_stops_only_for_a_schema_that_it_does_not_know(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(SECOND, range(2))
    query: ExpandedQuery = query_of(ExpandedQuery, emit="ranges")
    running = spark_groups.start(
        query.source()
        .writeStream.foreachBatch(query.writer())
        .option("checkpointLocation", str(query.checkpoint))
    )
    try:
        wait_until(lambda: query.ids() == [0, 1], READ_S, "the first records")
        known, unknown = orders.value_of(SECOND, 2), orders.value_of(THIRD, 9)
        orders.registry.pause()
        orders.write(known)
        wait_until(lambda: query.ids() == [0, 1, 2], READ_S, "a record of a known schema")
        orders.write(unknown)
        wait_until(lambda: running.status["isTriggerActive"], READ_S, "a batch that waits")
        orders.registry.resume()
        wait_until(lambda: query.ids() == [0, 1, 2, 9], READ_S, "the record of a new schema")
    finally:
        orders.registry.resume()
        running.stop()
    assert query.table().column_names == ["id", "amount", "currency"]


BAD = (b"bad", b"\0\x7f\0\0\0")
"""Bytes without a frame, and an id that the registry does not know."""


def test_record_that_cannot_be_decoded_fails_the_query_with_its_name(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(SECOND, range(1))
    orders.write(*BAD)
    failure = query_of(ExpandedQuery, emit="ranges").run()
    assert f"RecordsError: the record of {orders.topic}-0 at offset 1: the value cannot" in failure
    assert "Set onUndecodable to null" in failure


def test_record_that_cannot_be_decoded_is_null_with_its_bytes(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(SECOND, range(1))
    orders.write(None, *BAD)
    query: GroupQuery = query_of(GroupQuery, onUndecodable="null")
    query.run_available()
    rows = query.rows()
    assert [row["value"] and row["value"]["id"] for row in rows] == [0, None, None, None]
    assert [row["undecodable"] for row in rows[:2]] == [None, None]
    assert [row["undecodable"]["value"] for row in rows[2:]] == [*BAD]
    assert "schema id 2130706432" in rows[3]["undecodable"]["reason"]


@pytest.mark.parametrize("emit", ["records", "ranges"])
def test_records_that_cannot_be_decoded_are_counted_in_the_metrics(
    orders: Orders, query_of: Callable[..., Any], emit: str
) -> None:
    orders.produce(SECOND, range(1))
    orders.write(None, *BAD)
    port = free_port()
    query: ExpandedQuery = query_of(
        ExpandedQuery, emit=emit, onUndecodable="null", metricsPort=str(port)
    )
    stream, writer = query.source(), query.writer()
    if emit == "records":
        stream = stream.observe(UNDECODABLE, count(UNDECODABLE).alias("records"))
    writer.check(stream)
    spark_groups.listen(query.spark)
    running = spark_groups.start(
        stream.writeStream.foreachBatch(writer).option("checkpointLocation", str(query.checkpoint))
    )
    try:
        wait_until(lambda: running.exception() or _counted(port) == len(BAD), READ_S, "the counts")
        assert running.exception() is None
    finally:
        running.stop()
        close_listeners()
    assert writer.totals == ({} if emit == "records" else {spark_groups.Fate.UNDECODABLE: 2})
    assert query.table()["id"].to_pylist() == [0, None, None, None]


def _counted(port: int) -> float | None:
    try:
        return scrape(port).value("records_undecodable_total")
    except OSError:
        return None


def test_functions_that_take_bytes_say_what_to_do_with_typed_rows(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(SECOND, range(1))
    query: ExpandedQuery = query_of(ExpandedQuery, emit="ranges")
    rows = spark_groups.foreach_batch_rows(lambda *_: None)
    assert "decode in the function (from_json, from_avro); or write with write_table" in (
        query.run(rows)
    )
    records: ExpandedQuery = query_of(ExpandedQuery)
    strategy = spark_groups.SkipOrDeadLetter(at_last=spark_groups.AtLast.SKIP)
    failure = records.run(spark_groups.process_records(print, strategy), checkpoint="records")
    assert "leave valueFormat out of the stream's options, and decode in the function" in failure


def test_record_that_cannot_be_decoded_becomes_a_dead_letter(
    orders: Orders, query_of: Callable[..., Any]
) -> None:
    orders.produce(SECOND, range(1))
    orders.write(*BAD)
    orders.produce(SECOND, range(3, 4))
    query: ExpandedQuery = query_of(
        ExpandedQuery, emit="ranges", onUndecodable="deadLetters", includeHeaders="true"
    )
    with pytest.raises(OptionsError, match="give write_table an on_error"):
        query.writer().check(query.source())
    query.on_error = spark_groups.SkipOrDeadLetter()
    letters = f"{orders.topic}.{query.group_id}.dead-letter"
    create_topic(orders.bootstrap_servers, letters, 1)
    assert query.run() == ""
    assert query.ids() == [0, 3]
    assert [each.value for each in records_in(orders.bootstrap_servers, letters)] == [*BAD]
    rows = query_of(ExpandedQuery)
    rows.on_error = spark_groups.SkipOrDeadLetter()
    with pytest.raises(OptionsError, match="on_error requires emit=ranges"):
        rows.writer().check(rows.source())


def test_program_of_the_page_writes_the_orders(
    orders: Orders, spark: SparkSession, group_id: str, tmp_path: Path
) -> None:
    orders.produce(FIRST, range(2))
    table = tmp_path / "lake" / "orders"

    def await_table(query: StreamingQuery) -> None:
        try:
            wait_until(
                lambda: deltalake.DeltaTable.is_deltatable(str(table)) or query.exception(), READ_S
            )
            assert query.exception() is None
        finally:
            query.stop()
            close_listeners()

    page = ROOT / "docs" / "how-to" / "typed_rows.md"
    block = next(each for each in blocks_of(page.read_text()) if each.language == "python")
    replaced = {
        '"localhost:9092"': repr(orders.bootstrap_servers),
        '"http://localhost:8081"': repr(orders.registry.url),
        '"subscribe", "orders"': f'"subscribe", "{orders.topic}"',
        '"order-readers"': repr(group_id),
        '"/data/': f'"{tmp_path}/',
        "spark_groups.await_end(query)": "await_table(query)",
    }
    assert spark.sparkContext is not None, "the program gets the session that there is"
    run_python([block], replaced, {"__name__": "page", "await_table": await_table}, page.name)
    ids = deltalake.DeltaTable(table).to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == [0, 1]
