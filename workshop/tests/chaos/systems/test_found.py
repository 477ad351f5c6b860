"""Each form of a table is right as it was written, and each row that is changed then is found."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from spark_groups.cli.table_names import TableKind
from spark_groups.fence.beginnings import Batch
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange, topic_id_text
from workshop.chaos.results.account import Account, Evidence, account
from workshop.chaos.results.facts import Facts
from workshop.chaos.systems.evolving import VERSIONS, row_of
from workshop.chaos.systems.found import Found
from workshop.chaos.systems.tables import (
    Form,
    Places,
    open_routed,
    open_table,
    open_upserted,
)
from workshop.chaos.systems.upserted import replayed
from workshop.parts.table_write import write_batch

IDS = {"ants": uuid.UUID(int=1), "bees": uuid.UUID(int=2)}
GROUP = "g"
RECORDS = 40
ENDS = {(topic, index): RECORDS for topic in IDS for index in range(2)}
LOG = [row_of(*at, offset, offset % VERSIONS) for at in ENDS for offset in range(RECORDS)]
SCHEMA = pa.Table.from_pylist(LOG).schema
NAME = {Form.PARTITIONED: "delta", Form.ROUTES: "routes"}
Change = Callable[[Path, str], None]


def rows(where: Callable[[dict[str, Any]], bool]) -> pa.Table:
    return pa.Table.from_pylist([row for row in LOG if where(row)], schema=SCHEMA)


def write(table: FencedTable, topics: Iterable[str] = IDS, until: int = RECORDS) -> None:
    """Write the first records of partitions, as members do."""
    ranges = tuple(
        OffsetRange(IDS[topic], topic, index, 0, until) for topic, index in ENDS if topic in topics
    )

    def stage(asked: tuple[OffsetRange, ...], attempt: Attempt) -> list[Piece]:
        spans = {(each.topic, each.partition): each for each in asked}

        def is_asked(row: dict[str, Any]) -> bool:
            span = spans.get((row["topic"], row["partition"]))
            return span is not None and span.from_offset <= row["offset"] < span.until_offset

        return [*table.task_writer(attempt).write(rows(is_asked).to_batches(), "0-0")]

    write_batch(table, Batch(GROUP, 0, ranges), stage, Notices())


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path, is_partitioned=True)


def found(places: Places) -> Found:
    topics = {name: topic_id_text(each) for name, each in IDS.items()}
    return Found(places, GROUP, topics, has_fields=True)


def accounted(places: Places, form: Form) -> Account:
    routed = IDS if form is Form.ROUTES else ()
    kinds = () if form is Form.ROUTES else (TableKind.DELTA,)
    tables = found(places).evidence(kinds, routed)
    return account(Evidence(ENDS, (), tables, Facts(), {}, 10.0, 60.0))


def filled(places: Places, form: Form) -> Path:
    """Fill the tables of a form; return one of them, which has the rows of `ants`."""
    match form:
        case Form.PARTITIONED:
            write(open_table(TableKind.DELTA, places))
            assert deltalake.DeltaTable(places.delta).metadata().partition_columns == [
                "topic",
                "partition",
            ]
            return places.delta
        case Form.ROUTES:
            for topic in IDS:
                write(open_routed(places, topic), [topic])
            return places.routed("ants")
        case Form.UPSERTS:
            write(open_upserted(places))
            return places.upserted


def lose(path: Path, where: str) -> None:
    deltalake.DeltaTable(path).delete(where)


def double(path: Path, where: str) -> None:
    table = deltalake.DeltaTable(path)
    key, value = (each.strip("' ") for each in where.partition(" AND ")[0].split("="))
    again = [row for row in table.to_pyarrow_table().to_pylist() if row[key] == value][:1]
    own = pa.schema(deltalake.DeltaTable(path).schema().to_arrow())
    deltalake.write_deltalake(table, pa.Table.from_pylist(again, schema=own), mode="append")


def change(path: Path, where: str) -> None:
    deltalake.DeltaTable(path).update({"text": "'another'"}, predicate=where)


@pytest.mark.parametrize("form", NAME)
@pytest.mark.parametrize(
    ("planted", "problems"),
    [
        (
            lose,
            ["1 records lost in {}", "1 partitions of {} whose entry is not that of its rows"],
        ),
        (double, ["1 rows doubled in {}"]),
        (change, ["1 rows with a wrong checksum or place"]),
    ],
)
def test_row_that_is_lost_doubled_or_another_is_found(
    places: Places, form: Form, planted: Change, problems: list[str]
) -> None:
    path, name = filled(places, form), NAME[form]
    good = accounted(places, form)
    assert good.tables[name].rows == len(LOG)
    assert good.problems() == [f"{len(LOG)} records lost in the append sink"], "it is not written"
    planted(path, "topic = 'ants' AND partition = 1 AND \"offset\" = 7")
    assert accounted(places, form).problems()[1:] == [each.format(name) for each in problems]


def test_row_and_entry_in_the_table_of_another_topic_are_found(places: Places) -> None:
    filled(places, Form.ROUTES)
    write(open_routed(places, "ants"), ["bees"], until=1)
    wrong = accounted(places, Form.ROUTES)
    assert wrong.problems()[1:] == [
        "2 rows doubled in routes",
        "2 partitions of routes whose entry is not that of its rows",
        "2 rows with a wrong checksum or place",
    ]
    assert "routes: bees in the table of ants-1: the entry is [0, 1), the rows are 0 of [0, 0)" in (
        wrong.examples
    )


def test_table_of_a_route_that_no_batch_was_written_to_lacks_its_topic(places: Places) -> None:
    write(open_routed(places, "ants"), ["ants"])
    assert accounted(places, Form.ROUTES).tables["routes"].lost == 2 * RECORDS


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        (lose, "1 keys that the table lacks, such as {}"),
        (double, "1 keys with several rows, such as {}"),
        (change, "1 rows that are not the last ones of their keys, such as {}"),
    ],
)
def test_key_that_is_lost_doubled_or_another_is_found(
    places: Places, planted: Change, problem: str
) -> None:
    path = filled(places, Form.UPSERTS)
    last = replayed(LOG)
    assert found(places).upserted(LOG, ENDS) == (len(last), [])
    key = min(last)
    planted(path, f"key = '{key}'")
    assert found(places).upserted(LOG, ENDS)[1] == [f"upserted: {problem.format(key)}"]


def test_key_whose_last_records_were_not_written_is_found(places: Places) -> None:
    write(open_upserted(places), until=RECORDS - 1)
    wrong = found(places).upserted(LOG, ENDS)[1]
    assert [each.split(" is ")[0] for each in wrong[:4]] == [
        f"upserted: the entry of {topic}-{index}" for topic, index in ENDS
    ]
    assert len(wrong) > 4
