"""Partitions of Delta tables that this package and delta-spark write in turn, and both read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_groups.spark.tables.delta import delta_table
from tests.spark.tables.batches_setup import reads
from tests.spark.tables.upsert_setup import Driver
from workshop.parts.stores import DeltaStore

UTC = timezone.utc
AT = datetime(2024, 10, 27, 0, 30, 0, 250, UTC)
"""The first of the two instants of Berlin's repeated hour in autumn."""
TEXTS = (
    *("plain", None, "", " ", "a b ", "a/b", "a%b", "a%20b", "a=b", "a=b/c=d", "a:b", "a\\b", "."),
    *("é\U0001f600", "e\u0301", "null", "NULL", "\t\n\x7f", "'\"`#?*"),
)
TIMES = (AT, AT.replace(hour=1), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None)
TEXT = "Größe"
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    TEXT: (pa.string(), TEXTS),
    "day": (
        pa.date32(),
        (date(2024, 2, 29), None, date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)),
    ),
    "at": (pa.timestamp("us", "UTC"), (*TIMES, AT.replace(year=1), AT.replace(year=9999))),
    "local": (pa.timestamp("us"), [each and each.replace(tzinfo=None) for each in TIMES]),
    "is_late": (pa.bool_(), (True, None, False)),
    "digits": (pa.decimal128(38, 0), (Decimal(-7), Decimal(10**37), None, Decimal(0))),
    "a%b": (pa.int64(), (-(2**63), 2**63 - 1, None, 0)),
    "small": (pa.int8(), (-128, 127, None)),
    "ratio": (pa.float64(), (0.5, None, 1e20, float("nan"), float("inf"), -1e-7)),
    "single": (pa.float32(), (0.25, float("-inf"), None)),
}
SCHEMA = pa.schema([("n", pa.int64()), *((name, of) for name, (of, _) in VALUES.items())])
ROWS = len(TEXTS)
FRACTIONS = ("ratio", "single")
ZONE = "America/St_Johns"


def rows_from(first: int) -> pa.RecordBatch:
    """Return rows whose partitions all differ."""
    columns = [
        pa.array(range(first, first + ROWS), pa.int64()),
        *(pa.array([*islice(cycle(values), ROWS)], of) for of, values in VALUES.values()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def texts_of(rows: pa.Table) -> list[str]:
    """Return rows by their numbers, as text: NaN is unequal to itself.

    Empty text is the null that Delta has for it.
    """
    found = rows.select(SCHEMA.names).cast(SCHEMA).sort_by("n").to_pylist()
    return [repr({**each, TEXT: each[TEXT] or None}) for each in found]


def partition_by(way: str) -> list[str]:
    # A merge takes no time with a zone, and no file whose name is not ASCII.
    return [each for each in VALUES if way == "append" or each not in {"at", TEXT}]


class Ours:
    """Writes rows as the next records of a partition.

    Args:
        path: The table.
        way: Whether they are appended or merged by their numbers.
    """

    def __init__(self, path: Path, way: str) -> None:
        merge_on = "n" if way == "merge" else ()
        self.driver = Driver(delta_table(path, partition_by=partition_by(way), merge_on=merge_on))
        self.offset = 0

    def write(self, first: int, *, deleted: bool = False) -> None:
        rows, ends = rows_from(first), (self.offset, self.offset + ROWS)
        self.driver.look(reads(*ends))
        if self.driver.table.upsert is not None:
            places = {
                "topic": pa.repeat("departures", ROWS),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), ROWS),
                "offset": pa.array(range(*ends), pa.int64()),
                "_deleted": pa.repeat(deleted, ROWS),
            }
            for name, column in places.items():
                rows = rows.append_column(name, column)
        self.driver.commit(rows)
        self.offset += ROWS


def written_by_spark(session: SparkSession, path: Path, first: int, by: Sequence[str]) -> None:
    rows = pa.table(rows_from(first))
    columns = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    frame = session.createDataFrame(rows, columns).coalesce(1)
    frame.write.format("delta").mode("append").partitionBy(*by).save(str(path))


def partitions(path: Path) -> dict[int, dict[str, str | None]]:
    """Return the partition that the log has for each row, whose file has no other.

    Numbers with a fraction, and those of seconds, have several texts.
    """
    found = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text("utf-8").splitlines()):
            if added := action.get("add"):
                values = added["partitionValues"]
                for name in FRACTIONS:
                    values[name] = values[name] and repr(float(values[name]))
                values["local"] = values["local"] and values["local"].rstrip("0")
                found[json.loads(added["stats"])["minValues"]["n"]] = values
    return found


@pytest.mark.spark
@pytest.mark.parametrize("creator", ["this package", "delta-spark"])
@pytest.mark.parametrize("way", ["append", "merge"])
def test_each_writer_reads_the_partitions_of_the_other(
    delta_spark: SparkSession, tmp_path: Path, way: str, creator: str
) -> None:
    delta_spark.conf.set("spark.sql.session.timeZone", ZONE)
    # pyarrow reads Spark's default, INT96, in nanoseconds, which the years 1 and 9999 exceed.
    delta_spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    writer = Ours(tmp_path, way)
    if creator == "this package":
        writer.write(0)
    written_by_spark(delta_spark, tmp_path, 100, partition_by(way))
    if creator == "delta-spark" or way == "merge":
        writer.write(0)
    frame = delta_spark.read.format("delta").load(str(tmp_path))
    given = rows_from(0)
    wanted = texts_of(pa.Table.from_batches([given, rows_from(100)]))
    for reader, found in (*DeltaStore(tmp_path).rows(), ("delta-spark", frame.toArrow())):
        assert texts_of(found) == wanted, reader
    log = partitions(tmp_path)
    pairs = [(log[n].items(), log[100 + n].items()) for n in range(ROWS)]
    assert [sorted(ours ^ theirs, key=str) for ours, theirs in pairs if ours ^ theirs] == []
    for name in partition_by(way):
        values = VALUES[name][1]
        column = [str(each or None if name == TEXT else each) for each in given[name].to_pylist()]
        for text in {str(each) for each in values} - {""}:
            # A reader skips the files of other partitions.
            literal = f.lit(None if text == "None" else text).cast(frame.schema[name].dataType)
            same = frame.where(f.col(f"`{name}`").eqNullSafe(literal)).select("n").collect()
            sought = [n for n, each in enumerate(column) if each == text]
            assert sorted(each.n for each in same) == [*sought, *(100 + n for n in sought)], text
    if way == "merge":
        writer.write(100, deleted=True)
        (_, found), *_ = DeltaStore(tmp_path).rows()
        assert texts_of(found) == texts_of(pa.table(given))
