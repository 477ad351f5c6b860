"""The cost of typed rows: Avro, JSON and Protobuf from a topic into a Delta table, beside Spark's.

    python -m workshop.benchmarks.typed_tables [--rows 4000000] [--batch-rows 1000000] \
        [--repeats 3] [--topics avro,avro-nested,json,protobuf]

Each topic has one record of ten fields a row, or of an array of four such records. Peers decode
with Spark's own functions and write with delta-spark. Each table is checked: its rows, its ids,
and the sum of one column. Counts and repeats are those of `workshop.benchmarks.tables`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups import delta_table, write_table
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.source.foreach_batch_rows import TUNING
from workshop.benchmarks import avro, json_and_protobuf, tables_report
from workshop.benchmarks.cpu import CpuAccount
from workshop.benchmarks.figures import Goal, Spread
from workshop.benchmarks.noted import markdown_table
from workshop.benchmarks.report import facts_of, goal_table, joined, spread_text
from workshop.benchmarks.results import write_results
from workshop.benchmarks.table_ways import ARROW, SPARK_TUNED, DeltaTarget, Target, Way
from workshop.benchmarks.table_ways import WAYS as TABLE_WAYS
from workshop.benchmarks.tables import Bench, Case, session
from workshop.benchmarks.tables_report import Found, cpu_s, rate
from workshop.benchmarks.throughput import PARTITIONS, TASKS
from workshop.parts.connector import DELTA_SPARK, fetch_avro
from workshop.parts.messages import as_set, standard_files
from workshop.parts.schema_registry import Registry, running_registry

PAGE: Final = Path("docs/benchmarks/typed_rows.md")
BYTES: Final = "bytes to Delta"
TYPED: Final = "typed to Delta"
PEER: Final = "Spark's function, delta-spark"
PEER_TUNED: Final = f"{PEER}, tuned"
READ: Final = "typed rows, read only"
PEER_READ: Final = "Spark's function, read only"
NESTED_DDL: Final = f"id BIGINT, items ARRAY<STRUCT<{json_and_protobuf.FLAT}>>"


def _flat(number: str) -> str:
    """Return Spark's expressions of a flat record that follows from a number."""
    return f"""
        {number} AS id,
        pmod(xxhash64({number}, 0), 1073741824) AS amount,
        CAST(pmod(xxhash64({number}, 1), 4096) AS INT) AS count,
        CAST(pmod(xxhash64({number}, 2), 1048576) AS INT) AS zone,
        lower(substring(hex(xxhash64({number}, 3)), 1, 12)) AS name,
        lower(substring(hex(xxhash64({number}, 4)), 1, 12)) AS city,
        pmod(xxhash64({number}, 5), 1000003) / 1000003D AS price,
        pmod(xxhash64({number}, 6), 2) = 0 AS is_new,
        timestamp_millis(1700000000000 + pmod(xxhash64({number}, 7), 1073741824)) AS at,
        IF(pmod(xxhash64({number}, 8), 2) = 0, 'as ordered', NULL) AS note"""


FLAT: Final = f"struct({_flat('id')})"
NESTED: Final = (
    f"struct(id, transform(sequence(0L, {avro.ITEMS - 1}L),"
    f" n -> struct({_flat(f'(id * {avro.ITEMS} + n)')})) AS items)"
)


@dataclass(frozen=True)
class Format:
    """A kind of records.

    Args:
        record: Spark's expression of one, of the column `id`.
        encode: Makes its bytes.
        decode: Makes the record of the column `value`, by Spark's function; None: not measured.
        options: Options of this source for it.
        is_nested: Whether it has four flat records.
    """

    record: str
    encode: Callable[[Column], Column]
    decode: Callable[[Column], Column] | None
    options: Mapping[str, str]
    is_nested: bool = False


class Contents(NamedTuple):
    """The contents of a table that are compared.

    Args:
        rows: Its rows.
        ids: How many different ids they have.
        amount: The sum of the column amount.
        notes: How many notes there are.
    """

    rows: int
    ids: int
    amount: int
    notes: int


class TypedTarget(DeltaTarget):
    """A Delta table of typed rows that `write_table` writes."""

    wanted: Contents

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        return writer.foreachBatch(write_table(delta_table(self.directory), expand="value"))

    def problems(self, ends: Mapping[int, int], query: StreamingQuery) -> list[str]:
        """Return the faults of the table."""
        del query
        found = self._contents()
        wanted = self.wanted
        right = found == wanted and wanted.rows == sum(ends.values())
        return [] if right else [f"it has {found}, not {wanted}"]

    def _contents(self) -> Contents:
        ids, rows, amount, notes = [], 0, 0, 0
        for uri in deltalake.DeltaTable(self.directory).file_uris():
            path = urllib.parse.unquote(urllib.parse.urlsplit(uri).path)
            for batch in parquet.ParquetFile(path).iter_batches():
                inner: Any = batch
                if "items" in batch.schema.names:
                    inner = pa.RecordBatch.from_struct_array(pc.list_flatten(batch["items"]))
                ids.append(batch["id"])
                rows += batch.num_rows
                amount += pc.sum(inner["amount"]).as_py()
                notes += pc.count(inner["note"]).as_py()
        return Contents(rows, len(pc.unique(pa.chunked_array(ids))), amount, notes)


class TypedSparkTarget(TypedTarget):
    """A Delta table of typed rows that delta-spark writes."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        return writer.format("delta").option("path", str(self.directory))


class NowhereTarget(Target):
    """Takes all rows, and keeps none."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write nothing."""
        return writer.format("noop")

    def problems(self, ends: Mapping[int, int], query: StreamingQuery) -> list[str]:
        """Return the faults of the number of rows that Spark counted."""
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        return [] if rows == sum(ends.values()) else [f"{rows} rows, not {sum(ends.values())}"]


def formats(registry: Registry, descriptors: Path) -> dict[str, Format]:
    """Return the kinds of records, by the names of their topics.

    Args:
        registry: Gets the schemas of Avro.
        descriptors: A file with the descriptor set of the Protobuf message `t.Flat`.
    """

    def of_avro(topic: str, record: str, schema: Any) -> Format:
        frame = b"\0" + registry.register(f"{topic}-value", schema).to_bytes(4, "big")
        text = json.dumps(schema)
        return Format(
            record,
            lambda column: sf.concat(sf.lit(frame), to_avro(column, text)),
            lambda value: from_avro(sf.substring(value, 6, 1 << 30), text),
            {"valueFormat": "avro", "schemaRegistryUrl": registry.url},
            record == NESTED,
        )

    def of_json(record: str, ddl: str) -> Format:
        return Format(
            record,
            lambda column: sf.to_json(column).cast("binary"),
            lambda value: sf.from_json(value.cast("string"), ddl),
            {"valueFormat": "json", "valueSchema": ddl},
            record == NESTED,
        )

    return {
        "avro": of_avro("avro", FLAT, avro.FLAT),
        "avro-nested": of_avro("avro-nested", NESTED, avro.NESTED),
        "json": of_json(FLAT, json_and_protobuf.FLAT),
        "json-nested": of_json(NESTED, NESTED_DDL),
        "protobuf": Format(
            FLAT,
            sf.udf(json_and_protobuf.as_protobuf, "binary"),
            None,
            {
                "valueFormat": "protobuf",
                "valueSchema": str(descriptors),
                "valueMessageName": "t.Flat",
            },
        ),
    }


def ways_of(kind: Format, wanted: Contents) -> dict[str, Way]:
    """Return the ways to write a topic of one format."""
    ours = type("Ours", (TypedTarget,), {"wanted": wanted})
    peers = type("Peers", (TypedSparkTarget,), {"wanted": wanted})

    def decoded(stream: DataFrame) -> DataFrame:
        assert kind.decode is not None
        return stream.select(kind.decode(sf.col("value")).alias("v")).select("v.*")

    def spread(stream: DataFrame) -> DataFrame:
        return stream.select("value.*")

    tuned = TABLE_WAYS[SPARK_TUNED].settings
    ranges = {**kind.options, "emit": "ranges"}
    ways = {
        BYTES: TABLE_WAYS[ARROW],
        TYPED: Way(ours, "`write_table`, tasks decode", options=ranges),
        READ: Way(NowhereTarget, "rows of a DataFrame", options=kind.options, decoded=spread),
    }
    if kind.decode is not None:
        ways |= {
            PEER: Way(peers, "Spark's own source", "kafka", TUNING, {}, decoded),
            PEER_TUNED: Way(peers, "the same, tuned", "kafka", TUNING, tuned, decoded),
            PEER_READ: Way(NowhereTarget, "rows of it", "kafka", TUNING, {}, decoded),
        }
    return ways


def generate(
    spark: SparkSession, kafka: EmbeddedKafka, topic: str, kind: Format, rows: int
) -> Contents:
    """Write a topic, and return what a table of it has."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    records = spark.range(rows).selectExpr("id", f"{kind.record} AS record")
    (
        records.select(
            sf.expr("lpad(CAST(id AS STRING), 8, '0')").alias("key"),
            kind.encode(sf.col("record")).alias("value"),
            sf.expr(f"CAST(id % {PARTITIONS} AS INT)").alias("partition"),
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.linger.ms", "50")
        .option("kafka.batch.size", "131072")
        .option("topic", topic)
        .save()
    )
    each = "explode(record.items) AS each" if kind.is_nested else "record AS each"
    sums = records.selectExpr(each).selectExpr("sum(each.amount)", "count(each.note)").first()
    assert sums is not None
    return Contents(rows, rows, *sums)


def goals(found: Found) -> Iterator[Goal]:
    """Yield the goals, each with its measurement."""

    def goal(topic: str, way: str, peer: str, *, most: float = 0.0, least: float = 0.0) -> Goal:
        what = f"CPU of {way} to that of {peer}, {topic}"
        ratio = found.ratio(topic, way, peer, cpu_s)
        return Goal(what, most or least, not most, "x", ratio)

    def faster(topic: str, way: str, peer: str, least: float) -> Goal:
        what = f"rows a second of {way} to those of {peer}, {topic}"
        return Goal(what, least, True, "x", found.ratio(topic, way, peer, rate))

    yield goal("avro", TYPED, BYTES, most=1.5)
    yield faster("avro", TYPED, BYTES, 0.7)
    yield goal("avro", PEER, TYPED, least=8.0)
    yield goal("avro", PEER_TUNED, TYPED, least=8.0)
    yield faster("avro", READ, PEER_READ, 2.0)
    yield goal("json", PEER, TYPED, least=3.0)
    yield goal("json", PEER_TUNED, TYPED, least=3.0)
    flat, nested = (found.spread(topic, TYPED, cpu_s) for topic in ("avro", "avro-nested"))
    value = None
    if flat is not None and nested is not None:
        value = Spread.of([nested.median / avro.ITEMS / flat.median])
    what = f"CPU of a flat record in an array of {avro.ITEMS} to that of one alone, {TYPED}, avro"
    yield Goal(what, 2.0, False, "x", value)


def markdown(result: Mapping[str, Any], raw: str) -> str:
    """Return the page."""
    found = Found(result["readings"])
    lines = [
        "# Typed rows",
        "",
        "Written by `python -m workshop.benchmarks.typed_tables`: one topic into a new Delta table,"
        " by one query, in each way in turn, and again; and into nothing, as rows of a DataFrame."
        " A record has 2 longs, 2 ints, 2 strings of 12 characters, a double, a boolean, a"
        f" timestamp and a string that may be null; a nested one an array of {avro.ITEMS} such"
        " records. Avro's have the frame of a registry, from which tasks get the schema; the peer"
        " cuts it off, and has a fixed schema. For Protobuf no peer was measured:"
        " spark-protobuf could not be fetched. Each table is checked after its query."
        f" [{raw}]({raw}) has all readings, and [Writing a table](tables.md) says how it is"
        " counted.",
        "",
        f"- {joined(facts_of(result))}",
        *tables_report.company(found.readings),
        "",
        "## Goals",
        "",
        "Ratios compare readings of the same repeat; the median over all repeats counts.",
        "",
        *goal_table(goals(found)),
    ]
    heads = ("way", "M rows/s", "CPU s for a million rows", "CPU to that of " + TYPED)
    for topic, batch_rows in found.cases:
        rows = [
            (
                way,
                spread_text(found.spread(topic, way, rate), 2),
                spread_text(found.spread(topic, way, cpu_s), 2),
                spread_text(found.ratio(topic, way, TYPED, cpu_s), 2),
            )
            for way in found.ways(topic, batch_rows)
        ]
        lines += [f"## {topic}, batches of {batch_rows:,} rows", "", *markdown_table(heads, rows)]
    return "\n".join(lines).rstrip() + "\n"


def measure(given: argparse.Namespace, spark: SparkSession) -> None:
    """Measure every topic, and write the readings as they come."""
    readings = []
    with (
        tempfile.TemporaryDirectory(prefix="typed-") as directory,
        running_registry() as registry,
        EmbeddedKafka(heap_mb=512) as kafka,
    ):
        assert kafka.pid is not None
        descriptors = Path(directory, "flat.desc")
        descriptors.write_bytes(as_set(*standard_files(), json_and_protobuf.flat_file()))
        facts = {"partitions": PARTITIONS, "tasks": TASKS, "kafka": kafka.version}
        facts["delta_spark"] = DELTA_SPARK
        jvm_pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
        accounts = CpuAccount(jvm_pid), CpuAccount(kafka.pid), CpuAccount(registry.pid)
        kinds = formats(registry, descriptors)
        for topic in given.topics.split(","):
            kind = kinds[topic]
            part = 1 if not kind.is_nested else avro.ITEMS
            rows, batch_rows = given.rows // part, given.batch_rows // part
            ways = ways_of(kind, generate(spark, kafka, topic, kind, rows))
            bench = Bench(spark, kafka, "", accounts, given.company_max, ways)
            case = Case(topic, rows, batch_rows, tuple(ways))
            for reading in bench.measure(topic, case, given.repeats):
                readings.append(reading)
                write_results(given.json, facts, readings)
        for account in accounts:
            account.close()


def main() -> None:
    """Measure, check, write the readings as JSON, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000, help="flat records of a topic")
    parser.add_argument("--batch-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--topics", default="avro,avro-nested,json,json-nested,protobuf")
    parser.add_argument("--company-max", type=float, default=0.15, help="processors")
    parser.add_argument("--json", type=Path, default=PAGE.with_suffix(".json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    spark = session(fetch_avro(pyspark.__version__))
    measure(given, spark)
    spark.stop()
    result = json.loads(given.json.read_text(encoding="utf-8"))
    given.page.write_text(markdown(result, given.json.name), encoding="utf-8")


if __name__ == "__main__":
    main()
