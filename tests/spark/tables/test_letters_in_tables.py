"""Dead letters that a database keeps: each is there once, with the batch that leaves it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import spark_groups
from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.tables.left_out import LETTER_COLUMNS, Letters, RefusedRecord
from tests.spark.tables.batches_setup import GROUP, reads
from tests.spark.tables.every_table_setup import place_of
from tests.spark.tables.places import Database, SqlitePlace, Writer

BAD = RefusedRecord(
    Record(None, b"\xff", "departures", 0, 4, 1_000, (("trace", b"\x00"), ("none", None))),
    "ValueError: \0",
)
LETTERS = Letters("", 0, refused=(BAD,))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    made = place_of(request.param, request, tmp_path)
    assert isinstance(made, Database)
    return made


def writer_of(place: Any) -> Writer:
    writer = Writer(place)
    if isinstance(place, SqlitePlace):
        writer.table = spark_groups.sqlite_table(place.path, "rows", dead_letters="bad rows")
    else:
        writer.table = spark_groups.postgres_table(place.dsn, "rows", dead_letters="bad rows")
    return writer


def letters_in(place: Database) -> list[tuple[Any, ...]]:
    names = ", ".join(f'"{name}"' for name in LETTER_COLUMNS)
    return place.run(f'SELECT {names} FROM "bad rows"')


def test_letters_are_in_the_table_of_letters_once_with_their_batch(place: Database) -> None:
    writer, zombie = writer_of(place), writer_of(place)
    for each in (writer, zombie):
        each.look(reads(0, 10))
    writer.commit([*writer.stage(), LETTERS])
    # A zombie that has staged the same batch is refused, with its letters.
    pieces = [*zombie.stage(), LETTERS]
    with pytest.raises(TableChangedError):
        zombie.commit(pieces)
    (letter,) = letters_in(place)
    assert letter[:5] == (GROUP, "departures", 0, 4, 1_000)
    assert (letter[5], bytes(letter[6])) == (None, b"\xff")
    assert json.loads(letter[7]) == [["trace", "AA=="], ["none", None]]
    assert letter[8] == "ValueError: \\0"
    # The table of letters is there already.
    writer.look(reads(10, 20))
    writer.commit([*writer.stage(), LETTERS])
    assert len(letters_in(place)) == 2


def test_batch_of_letters_alone_keeps_them_without_a_table(place: Database) -> None:
    writer = writer_of(place)
    writer.look(reads(0, 10))
    writer.stage()
    writer.commit([LETTERS])
    assert len(letters_in(place)) == 1


def test_table_without_a_name_for_letters_keeps_none(place: Database) -> None:
    assert not place.fenced().keeps_letters
    assert writer_of(place).table.keeps_letters
    with pytest.raises(OptionsError, match="'' is not the name of a table"):
        spark_groups.postgres_table("dbname=lake", "rows", dead_letters="")


def test_another_table_for_letters_is_refused_at_the_start(place: Database) -> None:
    table = writer_of(place).table
    table.check()
    place.run('CREATE TABLE "bad rows" (topic text, note text)')
    with pytest.raises(TableError, match="'bad rows' is no table of dead letters"):
        table.check()
    place.run('DROP TABLE "bad rows"')
    kinds = {str: "text", int: "bigint", bytes: place.binary}
    columns = ", ".join(f'"{name}" {kinds[each]}' for name, each in LETTER_COLUMNS.items())
    place.run(f'CREATE TABLE "bad rows" (note text, {columns})')
    table.check()
