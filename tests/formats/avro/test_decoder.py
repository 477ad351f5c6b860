"""Whole columns: frames, schemas that come and go, memory that is full, bytes that are wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_groups.errors import SchemaLookupError, UnknownSchemaIdError
from spark_groups.formats.avro import decoder as decoders
from spark_groups.formats.avro import slots
from spark_groups.formats.avro.decoder import AvroDecoder
from spark_groups.formats.avro.instructions import EMPTY_ITEMS_MAX
from spark_groups.formats.decoding import DecodedColumn
from workshop.parts.avro import Schemas, octets_of, text_of, varint

ROW = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": "string"}},
    ],
}
EMPTY = {"type": "record", "name": "E", "fields": []}


def own(schema: Any, *, bytes_max: int = 1 << 24) -> AvroDecoder:
    return AvroDecoder(text_of(schema), None, bytes_max=bytes_max)


def reason(schema: Any, octets: bytes) -> str:
    """Return why a record is refused."""
    found = own(schema).decode(pa.array([octets], pa.binary()))
    assert found.values.null_count == 1
    return found.refused[0].reason


def test_records_that_are_wrong_leave_their_neighbours_alone() -> None:
    rows = [varint(n) + b"\2" + varint(1) + b"x" + b"\2" + varint(3) + b"abc\0" for n in range(9)]
    rows[3] = rows[3][:-3]
    rows[5] += b"\0"
    column = pa.array([*rows[:7], None, *rows[7:]], pa.binary())
    decoded = own(ROW).decode(column)
    decoded.values.validate(full=True)
    expected: list[Any] = [{"a": n, "b": "x", "c": ["abc"]} for n in range(9)]
    expected[3] = expected[5] = None
    assert decoded.values.to_pylist() == [*expected[:7], None, *expected[7:]]
    assert list(decoded.refused) == [3, 5]
    assert decoded.refused[5].reason == "there are bytes left after its last value"
    # A field of a refused record is null, not only the record.
    assert decoded.values.flatten()[0].null_count == 3
    assert decoded.values.field("a").null_count == 3


def test_slices_and_empty_columns_are_decoded() -> None:
    column = pa.array([varint(n) for n in range(20)], pa.binary())
    decoder = own("long")
    assert decoder.decode(column[5:8]).values.to_pylist() == [5, 6, 7]
    assert decoder.decode(column[:0]).values.to_pylist() == []
    assert decoder.decode(pa.array([None, None], pa.binary())).values.to_pylist() == [None] * 2
    assert decoder.arrow_type == pa.int64()


@pytest.mark.parametrize(
    ("schema", "octets", "words"),
    [
        ("long", b"\x80" * 9 + b"\1", ""),
        ("long", b"\x80" * 9 + b"\2", "more than 64 bits"),
        ("long", b"\x80" * 10 + b"\1", "more than 64 bits"),
        ("long", b"\x80", "its bytes end within a value"),
        ("int", varint(2**31), "more than 32 bits"),
        ("int", varint(-(2**31) - 1), "more than 32 bits"),
        ("boolean", b"\2", "neither 0 nor 1"),
        ("boolean", b"", "its bytes end within a value"),
        ("double", bytes(7), "its bytes end within a value"),
        ("bytes", varint(-1), "a length is negative"),
        ("bytes", varint(2**63 - 1), "reaches beyond its bytes"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "reaches beyond its bytes"),
        (["null", "int"], varint(2), "no branch of that number"),
        (["null", "int"], varint(-1), "no branch of that number"),
        (["null", "int", "string"], varint(3), "no branch of that number"),
        ({"type": "array", "items": EMPTY}, varint(2**62), "more items than its bytes"),
        ({"type": "array", "items": "int"}, varint(-(2**63)) + b"\0", "a length is negative"),
        ({"type": "array", "items": "int"}, varint(-1) + varint(99), "beyond its bytes"),
        ({"type": "array", "items": "int"}, varint(1) + b"\0", "end within a value"),
        ({"type": "map", "values": "int"}, varint(1) + varint(1) + b"\xff\0\0", "UTF-8"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            varint(2**60),
            "does not fit microseconds",
        ),
    ],
)
def test_malformed_records_are_refused(schema: Any, octets: bytes, words: str) -> None:
    if words:
        assert words in reason(schema, octets)
    else:
        column = own(schema).decode(pa.array([octets], pa.binary()))
        assert column.values.to_pylist() == [2**62]


@pytest.mark.parametrize("before", [0, 3, 8, 20])
def test_texts_are_utf8_as_python_has_it(before: int) -> None:
    chance = random.Random(before)
    hostile = [bytes([first, 0x80, 0xBF, 0x80]) for first in range(0x80, 0x100)]
    hostile += [bytes([0xE0, n, 0x80]) for n in range(0x7F, 0xC1, 5)]
    hostile += [bytes([0xED, n, 0x80]) for n in range(0x7F, 0xC1)]
    hostile += [bytes([lead, n, 0x80, 0x80]) for lead in (0xF0, 0xF4) for n in range(0x7F, 0xC1)]
    hostile += [chr(n).encode() for n in (0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF)]
    hostile += [each[:-1] for each in hostile] + [chance.randbytes(2) for _ in range(300)]
    texts = [b"a" * before + each + b"b" * (before // 2) for each in hostile]
    column = pa.array([varint(len(each)) + each for each in texts], pa.binary())
    decoded = own("string").decode(column)
    decoded.values.validate(full=True)
    for row, octets in enumerate(texts):
        text = octets.decode("utf-8", "replace")
        is_valid = text.encode() == octets
        assert (row not in decoded.refused) == is_valid, octets
        assert decoded.values[row].as_py() == (text if is_valid else None)


def test_the_path_of_a_value_is_named() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {
                "name": "list",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "I",
                        "fields": [{"name": "flag", "type": "boolean"}],
                    },
                },
            }
        ],
    }
    assert reason(schema, varint(1) + b"\7").startswith("list[].flag: a boolean is neither")


def test_empty_items_have_a_limit() -> None:
    schema = {"type": "array", "items": EMPTY}
    fits, over = (varint(EMPTY_ITEMS_MAX + more) + b"\0" for more in (0, 9))
    decoded = own(schema).decode(pa.array([fits, over], pa.binary()))
    assert len(decoded.values[0]) == EMPTY_ITEMS_MAX
    assert list(decoded.refused) == [1]


# Schema ids.


def framed(schema_id: int, octets: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + octets


def test_rows_of_many_schemas_alternate() -> None:
    asked: list[int] = []

    def schema_of(schema_id: int) -> str:
        asked.append(schema_id)
        return json.dumps("int" if schema_id % 2 else ["null", "long", "string"])

    decoder = AvroDecoder('["null", "long"]', schema_of, bytes_max=1 << 24)
    chance, rows, expected = random.Random(7), [], []
    for number in range(5000):
        schema_id = chance.randrange(300) * (2**31 // 300)
        union = b"" if schema_id % 2 else varint(1)
        rows.append(framed(schema_id, union + varint(number)))
        expected.append(number)
    for _ in range(2):
        decoded = decoder.decode(pa.array(rows, pa.binary()))
        assert decoded.values.to_pylist() == expected
        assert not decoded.refused
    assert len(asked) == len(set(asked))


def test_frames_are_checked() -> None:
    decoder = AvroDecoder('"int"', lambda _: '"int"', bytes_max=1 << 20)
    rows = [b"", b"\0\0\0\0", b"\1" + bytes(5), b"\0\xff" + bytes(4), framed(2**31 - 1, b"\2")]
    decoded = decoder.decode(pa.array(rows, pa.binary()))
    assert decoded.values.to_pylist() == [None] * 4 + [1]
    assert {each.reason for each in decoded.refused.values()} == {
        "it does not begin with a zero byte and the 4 bytes of a schema id"
    }
    assert {each.schema_id for each in decoded.refused.values()} == {None}


def test_an_id_that_is_registered_later_is_read_from_then_on() -> None:
    known: dict[int, str] = {}

    def schema_of(schema_id: int) -> str:
        if schema_id not in known:
            raise UnknownSchemaIdError(f"the registry has no schema {schema_id}")
        return known[schema_id]

    decoder = AvroDecoder('"int"', schema_of, bytes_max=1 << 20)
    rows = pa.array([framed(1, b"\2"), framed(1, b"\4")], pa.binary())
    assert len(decoder.decode(rows).refused) == 2
    known[1] = '"int"'
    assert decoder.decode(rows).values.to_pylist() == [1, 2]


def test_unknown_ids_and_broken_schemas_refuse_their_records() -> None:
    def schema_of(schema_id: int) -> str:
        if schema_id == 1:
            raise UnknownSchemaIdError("the registry has no schema 1")
        return {2: "{", 3: '"string"', 4: '"int"'}[schema_id]

    decoder = AvroDecoder('"int"', schema_of, bytes_max=1 << 20)
    rows = [framed(each, b"\2") for each in (1, 2, 3, 4)]
    decoded = decoder.decode(pa.array(rows, pa.binary()))
    assert decoded.values.to_pylist() == [None, None, None, 1]
    reasons = [each.reason for each in decoded.refused.values()]
    assert reasons[0] == "its schema is unknown: the registry has no schema 1"
    assert reasons[1].startswith("its schema does not fit that of the rows: the Avro schema is not")
    assert "string of the writer cannot become int" in reasons[2]
    assert [each.schema_id for each in decoded.refused.values()] == [1, 2, 3]


def test_a_registry_that_is_away_fails_the_task() -> None:
    answers: list[Callable[[], str]] = []

    def schema_of(_: int) -> str:
        return answers.pop()()

    def away() -> str:
        raise SchemaLookupError("the registry is away")

    decoder = AvroDecoder('"int"', schema_of, bytes_max=1 << 20)
    answers += [lambda: '"int"', away]
    column = pa.array([framed(1, b"\2")], pa.binary())
    with pytest.raises(SchemaLookupError, match="away"):
        decoder.decode(column)
    assert decoder.decode(column).values.to_pylist() == [1]


def test_schemas_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "PROGRAM_NUMBERS_MAX", 20_000)
    asked: list[int] = []

    def schema_of(schema_id: int) -> str:
        asked.append(schema_id)
        return '"int"'

    decoder = AvroDecoder('"int"', schema_of, bytes_max=1 << 20)
    for first in (0, 60, 120, 120):
        rows = [framed(first + each, b"\2") for each in range(60)]
        assert decoder.decode(pa.array(rows, pa.binary())).values.to_pylist() == [1] * 60
    assert len(asked) == 240


def test_bytes_that_are_a_whole_record_have_no_length_behind_a_frame() -> None:
    for reader, expected in ((["null", "bytes"], b"\2ab"), ("string", "\2ab")):
        decoder = AvroDecoder(json.dumps(reader), lambda _: '"bytes"', bytes_max=1 << 20)
        decoded = decoder.decode(pa.array([framed(1, b"\2ab"), framed(1, b"")], pa.binary()))
        assert decoded.values.to_pylist() == [expected, expected[:0]]
    bare = own("bytes").decode(pa.array([b"\4ab"], pa.binary()))
    assert bare.values.to_pylist() == [b"ab"]


# Memory.


def test_a_column_that_would_be_too_large_is_shorter() -> None:
    row = varint(5) + varint(1) + varint(20) + b"x" * 20 + varint(1) + varint(3) + b"abc\0"
    column = pa.array([row] * 5000, pa.binary())
    decoder = own(ROW, bytes_max=50_000)
    rows, calls = 0, 0
    while rows < len(column):
        decoded = decoder.decode(column[rows:])
        decoded.values.validate(full=True)
        assert 0 < len(decoded.values) < 2000
        assert decoded.values.get_total_buffer_size() <= 50_000 * 1.1
        assert decoded.values[-1].as_py() == {"a": 5, "b": "x" * 20, "c": ["abc"]}
        rows, calls = rows + len(decoded.values), calls + 1
    assert rows == 5000
    assert calls < 40


def test_a_record_that_is_too_large_alone_is_refused() -> None:
    small = varint(5) + b"\0\0"
    large = varint(5) + varint(1) + varint(90_000) + b"x" * 90_000 + b"\0"
    decoder = own(ROW, bytes_max=50_000)
    first = decoder.decode(pa.array([small, large, small], pa.binary()))
    assert len(first.values) == 1
    rest = decoder.decode(pa.array([large, small], pa.binary()))
    assert rest.values.to_pylist() == [None]
    assert decoder.decode(pa.array([small], pa.binary())).values.to_pylist() == [
        {"a": 5, "b": None, "c": []}
    ]
    assert rest.refused[0].reason == "b: its values need more memory than a column may use"


TEXTS = {
    "type": "record",
    "name": "T",
    "fields": [{"name": f"f{n}", "type": "string"} for n in range(9_998)],
}
NUMBERS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("schema", "octets", "rows"),
    [
        ("bytes", varint(17_000_000) + bytes(17_000_000), 3),
        (NUMBERS, varint(1_900_000) + b"\2" * 1_900_000 + b"\0", 3),
        (TEXTS, varint(2_000) + b"x" * 2_000 + (varint(4) + b"abcd") * 9_997, 2_000),
    ],
    ids=["bytes", "numbers", "texts"],
)
def test_a_record_that_a_task_has_memory_for_is_decoded(
    schema: Any, octets: bytes, rows: int
) -> None:
    decoder = AvroDecoder(text_of(schema), None, bytes_max=1 << 24, record_bytes_max=1 << 26)
    column = pa.array([octets] * rows, pa.binary())
    for row in (0, 1):
        decoded = decoder.decode(column[row:])
        assert not decoded.refused
        assert decoded.values.null_count == 0
        assert decoded.values[0] == decoded.values[len(decoded.values) - 1]


def test_defaults_cannot_make_a_record_larger_than_the_memory() -> None:
    item = {"type": "record", "name": "I", "fields": []}
    default = {"name": "d", "type": "string", "default": "x" * 10_000}
    writer, reader = (
        {"type": "array", "items": each} for each in (item, item | {"fields": [default]})
    )
    decoder = AvroDecoder(text_of(reader), lambda _: text_of(writer), bytes_max=1 << 20)
    rows = [framed(1, varint(count) + b"\0") for count in (60_000, 3)]
    assert list(decoder.decode(pa.array(rows, pa.binary())).refused) == [0]
    decoded = decoder.decode(pa.array(rows[1:], pa.binary()))
    assert decoded.values[0].as_py() == [{"d": "x" * 10_000}] * 3


@pytest.mark.parametrize("seed", range(40))
def test_buffers_that_grow_within_a_record_hold_the_same_values(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All buffers begin with room for one value, so that each instruction finds its slot full."""
    chance = random.Random(seed)
    drawn = Schemas(chance)
    writer = drawn.record()
    reader = drawn.evolved(writer)
    rows = [framed(1, octets_of(chance, writer)) for _ in range(50)]
    column = pa.array(rows, pa.binary())

    def decoded() -> DecodedColumn:
        decoder = AvroDecoder(text_of(reader), lambda _: text_of(writer), bytes_max=1 << 22)
        return decoder.decode(column)

    expected = decoded()
    monkeypatch.setattr(slots, "_FIRST_ITEMS", 1)
    monkeypatch.setattr(slots, "_FIRST_BYTES", 1)
    monkeypatch.setattr(
        decoders,
        "SlotBuffers",
        lambda root, _, bytes_max, used: slots.SlotBuffers(root, 1, bytes_max, 0 * used),
    )
    found = decoded()
    found.values.validate(full=True)
    assert repr(found.values.to_pylist()) == repr(expected.values.to_pylist())
    assert found.refused == expected.refused


def test_many_columns_and_rows_are_decoded_without_reading_anything_twice() -> None:
    """One record of 20,000 items of 40 fields costs about as much as as many records."""
    fields = [{"name": f"f{n}", "type": "string"} for n in range(40)]
    item = {"type": "record", "name": "I", "fields": fields}
    octets = varint(20_000) + (varint(2) + b"ab") * 40 * 20_000 + b"\0"
    decoder = own({"type": "array", "items": item}, bytes_max=1 << 26)
    values = decoder.decode(pa.array([octets], pa.binary())).values
    assert len(values[0]) == 20_000
    assert set(values.values.field("f39").to_pylist()) == {"ab"}
    assert np.asarray(values.offsets).tolist() == [0, 20_000]
