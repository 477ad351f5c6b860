"""Each record says what its row must be, over every change of its writer's schema."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pytest

from workshop.chaos.systems.evolving import (
    BEHIND,
    CHANGES,
    VERSIONS,
    Change,
    Writers,
    delta_rows,
    is_right_row,
    readers_schema,
    row_of,
    unread_versions,
    version_at,
    writers_schema,
    written,
)

PLACE = ("ants", 3, 17)


def names(schema: Mapping[str, Any], kind: str | None = None) -> set[str]:
    return {each["name"] for each in schema["fields"] if kind in (None, each["type"])}


@pytest.mark.parametrize("version", range(VERSIONS))
def test_row_of_a_record_is_what_fastavro_reads(version: int) -> None:
    writer, reader = (
        fastavro.parse_schema(each) for each in (writers_schema(version), readers_schema())
    )
    for offset in range(40):
        place = ("ants", 3, offset)
        octets = io.BytesIO()
        fastavro.schemaless_writer(octets, writer, written(*place, version), strict=True)
        octets.seek(0)
        row = fastavro.schemaless_reader(octets, writer, reader)
        assert row == row_of(*place, version)
        assert is_right_row(row, *place)


@pytest.mark.parametrize("version", range(1, VERSIONS))
def test_each_schema_differs_from_the_one_before_by_its_change(version: int) -> None:
    before, after = writers_schema(version - 1), writers_schema(version)
    more, fewer = names(after) - names(before), names(before) - names(after)
    match CHANGES[version - 1]:
        case Change.ADDED:
            assert len(more) == 1
            assert not fewer
            assert more <= names(readers_schema())
        case Change.PROMOTED:
            assert not more | fewer
            assert len(names(after, "long") - names(before, "long")) == 1
        case Change.REMOVED:
            assert not more
            assert len(fewer) == 1
        case Change.UNKNOWN:
            assert len(more) == 1
            assert not fewer | more & names(readers_schema())


def test_rows_of_two_writers_differ_and_a_row_is_wrong_where_it_is_not_written() -> None:
    rows = [row_of(*PLACE, version) for version in range(VERSIONS)]
    values = [tuple(row[name] for name in names(readers_schema())) for row in rows]
    assert len(set(map(repr, values))) == VERSIONS
    row = rows[5]
    assert is_right_row(row, *PLACE)
    for place in (("bees", 3, 17), ("ants", 2, 17), ("ants", 3, 18)):
        assert not is_right_row(row, *place)
    for name in row:
        assert not is_right_row({**row, name: "another"}, *PLACE)
        assert not is_right_row({each: row[each] for each in row if each != name}, *PLACE)
    assert not is_right_row({**row, "version": 6}, *PLACE)
    assert not is_right_row({**row, "version": VERSIONS}, *PLACE)
    assert not is_right_row({**row, "more": 1}, *PLACE)
    assert not is_right_row(None, *PLACE)


def test_some_writers_are_behind_and_the_last_schema_stays() -> None:
    assert [version_at(since_s, 10.0, BEHIND) for since_s in (0.0, 9.9, 10.0, 1e6)] == [
        *(0, 0, 1),
        VERSIONS - 1,
    ]
    assert [version_at(since_s, 10.0, 0.0) for since_s in (0.0, 10.0, 1e6)] == [0, 0, VERSIONS - 2]


@pytest.mark.parametrize(("interval_s", "expected"), [(1e6, {0}), (1e-9, {0, 11, 12})])
def test_schema_is_registered_before_its_first_record(
    interval_s: float, expected: set[int]
) -> None:
    schemas, said = list[Mapping[str, Any]](), list[str]()

    def register(schema: Mapping[str, Any]) -> int:
        schemas.append(schema)
        return 1_000 + len(schemas)

    writers = Writers(register, interval_s, 7, said.append)
    assert schemas == [readers_schema()]
    found = []
    for offset in range(50):
        value = writers("ants", 3, offset, "")
        assert value[0] == 0
        schema = schemas[int.from_bytes(value[1:5], "big") - 1_001]
        record = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        assert record == written("ants", 3, offset, record["version"])
        found.append(record["version"])
    assert set(found) == expected
    assert writers.versions == len(expected) == len(said) == len(schemas) - 1
    log = list(writers.log({("ants", 3): 49}))
    assert [row["version"] for row in log] == found[:49], "the last one was not taken"
    assert all(is_right_row(row, *PLACE[:2], offset) for offset, row in enumerate(log))


def test_table_tells_wrong_rows_and_schemas_that_were_not_read(tmp_path: Path) -> None:
    rows = [row_of("ants", 0, each, each % VERSIONS) for each in range(20)]
    rows[4]["number0"] += 1
    deltalake.write_deltalake(tmp_path, pa.Table.from_pylist(rows))
    found = {row.offset: row.is_right for row in delta_rows(tmp_path)}
    assert found == {each: each != 4 for each in range(20)}
    assert unread_versions(tmp_path, VERSIONS) == []
    assert unread_versions(tmp_path, 3) == ["of 13 schemas, writers had 3, and rows have 13"]
