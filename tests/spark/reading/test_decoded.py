"""Keys and values that are decoded where they are read, and those that cannot be decoded."""

from __future__ import annotations

import importlib.util
import logging
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.errors import OptionsError, RecordsError
from spark_groups.formats.decoding import DecodedColumn
from spark_groups.formats.text import TextDecoder
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading import decoded as decoding
from spark_groups.spark.reading.decoded import decoded
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.spark.schemas.decoders import row_schema
from spark_groups.spark.schemas.row_formats import (
    ColumnFormat,
    Format,
    OnUndecodable,
    RowFormats,
)

TEXT = ColumnFormat(format=Format.STRING)


def settings(on_undecodable: OnUndecodable = OnUndecodable.FAIL, **columns: Any) -> RangeSettings:
    formats = RowFormats(**(columns or {"value": TEXT}), on_undecodable=on_undecodable)
    return RangeSettings(bootstrap_servers=("a:1",), group_id="g", formats=formats)


def records(*values: bytes | None, key: bytes | None = b"k", first: int = 10) -> pa.RecordBatch:
    rows = [
        {"key": key, "value": value, "topic": "t", "partition": 3, "offset": first + place}
        for place, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def test_rows_without_formats_are_the_records_themselves() -> None:
    batch = records(b"a")
    (found,) = decoded(RangeSettings(bootstrap_servers=("a:1",), group_id="g"), [batch])
    assert found.rows is batch


def test_avro_without_numba_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    avro = RowFormats(value=ColumnFormat(format=Format.AVRO, schema='"int"'))
    assert row_schema(ROW_SCHEMA, avro).field("value").type == pa.int32()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(OptionsError, match=r"Avro needs numba: install spark-groups\[avro\]"):
        row_schema(ROW_SCHEMA, avro)


def test_task_decodes_avro_with_compiled_code() -> None:
    avro = ColumnFormat(format=Format.AVRO, schema='"long"')
    (found,) = decoded(settings(value=avro), [records(b"\x0e", None)])
    assert found.rows.column("value").to_pylist() == [7, None]


def test_type_that_is_only_null_is_named_by_its_path() -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "null"}]}'
    avro = RowFormats(value=ColumnFormat(format=Format.AVRO, schema=schema))
    with pytest.raises(OptionsError, match=r"^valueSchema: value\.f: columns cannot have"):
        row_schema(ROW_SCHEMA, avro)


def test_columns_are_decoded_in_place() -> None:
    chosen = settings(key=TEXT, value=TEXT)
    (found,) = decoded(chosen, [records("ä".encode(), None)])
    assert found.rows.schema == row_schema(ROW_SCHEMA, chosen.formats)
    assert found.rows.column("value").to_pylist() == ["ä", None]
    assert found.rows.column("key").to_pylist() == ["k", "k"]
    assert found.records.column("value").to_pylist() == ["ä".encode(), None]


def test_record_that_cannot_be_decoded_is_named_with_the_option_for_it() -> None:
    with pytest.raises(RecordsError) as raised:
        [*decoded(settings(), [records(b"a", b"\xff", b"\xfe")])]
    assert str(raised.value) == (
        "the record of t-3 at offset 11: the value cannot be decoded: it is not UTF-8: byte 0 is"
        " 0xff. Set onUndecodable to null to get such records with their bytes, or, with"
        " write_table and emit=ranges, to deadLetters"
    )


def test_null_keeps_bytes_and_reason_and_counts_records(caplog: pytest.LogCaptureFixture) -> None:
    chosen = settings(OnUndecodable.NULL, key=TEXT, value=TEXT)
    batches = [records(b"a", b"\xff"), records(b"b", first=20), records(b"\xfe", key=b"\xfd")]
    with caplog.at_level(logging.WARNING):
        found = [*decoded(chosen, batches)]
    assert {each.rows.schema for each in found} == {row_schema(ROW_SCHEMA, chosen.formats)}
    first, second, third = (each.rows.to_pylist() for each in found)
    assert [each["undecodable"] for each in (*first[:1], *second)] == [None, None]
    assert [each["value"] for each in first] == ["a", None]
    assert first[1]["undecodable"] == {
        "key": b"k",
        "value": b"\xff",
        "reason": "the value cannot be decoded: it is not UTF-8: byte 0 is 0xff",
    }
    assert third[0]["undecodable"]["reason"].count("cannot be decoded") == 2
    (line,) = caplog.records
    assert line.getMessage().startswith("2 records of t-3 cannot be decoded")
    assert "the first is that at offset 11" in line.getMessage()


def test_dead_letters_get_the_records_and_the_rest_become_rows() -> None:
    letters: list[tuple[Any, str]] = []

    def refuse(record: pa.RecordBatch, reason: str) -> None:
        letters.append((record.to_pylist()[0]["offset"], reason[:27]))

    chosen = settings(OnUndecodable.DEAD_LETTERS)
    batches = [records(b"a", b"\xff", b"c"), records(b"\xff", first=20)]
    (found,) = decoded(chosen, batches, refuse)
    assert found.rows.column("offset").to_pylist() == [10, 12]
    assert found.records.column("value").to_pylist() == [b"a", b"c"]
    assert letters == [(11, "the value cannot be decoded"), (20, "the value cannot be decoded")]


class Small(TextDecoder):
    """A decoder whose memory has room for a few records."""

    def __init__(self, room: int) -> None:
        self.room = room

    def decode(self, column: pa.Array) -> DecodedColumn:
        return super().decode(column.slice(0, self.room))


@pytest.mark.parametrize(("key_room", "value_room"), [(9, 2), (2, 9), (3, 2), (2, 3)])
def test_batch_is_divided_where_a_decoder_is_full(
    monkeypatch: pytest.MonkeyPatch, key_room: int, value_room: int
) -> None:
    rooms = {"key": Small(key_room), "value": Small(value_room)}
    monkeypatch.setattr(decoding, "decoders_of", lambda *_, **__: rooms)
    monkeypatch.setattr(decoding, "_IDLE", {})
    chosen = settings(OnUndecodable.NULL, key=TEXT, value=TEXT)
    values = [b"\xff" if place % 3 == 2 else b"a" for place in range(7)]
    found = [*decoded(chosen, [records(*values)])]
    assert [each.num_rows for each in found] == [2, 2, 2, 1]
    rows = [row for each in found for row in each.rows.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(10, 17))
    assert [row["undecodable"] is not None for row in rows] == [
        value == b"\xff" for value in values
    ]


def test_decoders_stay_for_later_tasks_unless_a_task_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_IDLE", {})
    chosen = settings()
    [*decoded(chosen, [records(b"a")])]
    (kept,) = decoding._IDLE.values()
    [*decoded(pickle.loads(pickle.dumps(chosen)), [records(b"a")])]
    assert [*decoding._IDLE.values()] == [kept]
    with pytest.raises(RecordsError):
        [*decoded(chosen, [records(b"\xff")])]
    assert decoding._IDLE == {}
    for memory_bytes in range(10):
        [*decoded(replace(chosen, memory_bytes=memory_bytes), [records(b"a")])]
    assert len(decoding._IDLE) == decoding._IDLE_MAX
