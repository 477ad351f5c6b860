"""How records of one schema become values of another: what no random schema is sure to have."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.decoder import AvroDecoder
from spark_groups.formats.avro.resolution import resolve
from spark_groups.formats.avro.schema import parse_schema
from workshop.parts.avro import varint


def field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **more}]}


def octets_of(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def read(writer: Any, reader: Any, octets: bytes) -> Any:
    """Return the value or the reason."""
    decoder = AvroDecoder(json.dumps(reader), lambda _: json.dumps(writer), bytes_max=1 << 20)
    column = decoder.decode(pa.array([b"\0\0\0\0\7" + octets], pa.binary()))
    column.values.validate(full=True)
    refused = column.refused.get(0)
    assert refused is None or refused.schema_id == 7
    return column.values[0].as_py() if refused is None else refused.reason


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


DAY_MILLIS = 86_400_000
DAY = datetime.datetime(1970, 1, 2)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("writer", "reader", "written", "expected"),
    [
        ("timestamp-millis", "timestamp-micros", DAY_MILLIS, DAY),
        ("timestamp-micros", "timestamp-millis", DAY_MILLIS * 1000, DAY),
        ("", "timestamp-millis", DAY_MILLIS, DAY),
        ("", "timestamp-micros", DAY_MILLIS * 1000, DAY),
        ("local-timestamp-millis", "timestamp-micros", DAY_MILLIS, DAY),
        ("timestamp-millis", "", DAY_MILLIS, DAY_MILLIS),
        ("timestamp-nanos", "timestamp-nanos", DAY_MILLIS, DAY_MILLIS),
        ("time-micros", "time-micros", 7, 7),
    ],
)
def test_times_have_the_unit_of_the_writer(
    writer: str, reader: str, written: int, expected: Any
) -> None:
    found = read(logical("long", writer), logical("long", reader), varint(written))
    assert found == expected or found.replace(tzinfo=None) == expected


def test_milliseconds_of_a_day_become_microseconds() -> None:
    millis, micros = logical("int", "time-millis"), logical("long", "time-micros")
    assert read(millis, micros, varint(7)) == 7_000
    assert "time-millis of the writer cannot become timestamp-micros" not in read(
        logical("int", "date"), logical("long", "timestamp-micros"), varint(7)
    )


@pytest.mark.parametrize(
    ("reader", "written", "expected"),
    [
        # The same type wins over a promotion, and int or long with each other are a long.
        (["double", "int"], "int", {"member0": None, "member1": 7}),
        (["float", "long", "string"], "int", {"member0": 7.0, "member1": None, "member2": None}),
        (["int", "long"], "int", 7),
        (["null", "int", "long"], "int", 7),
        (["null", "float", "double"], "int", 7.0),
        (["double", "null"], "int", 7.0),
        (["bytes", "string"], "string", {"member0": None, "member1": "süß"}),
        (["bytes", "int"], "string", {"member0": "süß".encode(), "member1": None}),
        ("bytes", "string", "süß".encode()),
    ],
)
def test_a_value_becomes_the_branch_that_fits_best(
    reader: Any, written: str, expected: Any
) -> None:
    text = "süß".encode()
    octets = varint(7) if written == "int" else varint(len(text)) + text
    assert read(written, reader, octets) == expected
    other = "boolean"
    assert read([other, written], reader, varint(1) + octets) == expected


def test_a_branch_that_the_reader_lacks_refuses_only_its_records() -> None:
    assert read(["null", "string"], "string", varint(1) + varint(1) + b"a") == "a"
    assert "no type for the branch" in read(["null", "string"], "string", varint(0))
    assert "1 of the writer" not in read(["null", "string"], "int", varint(0))


def test_records_in_a_union_are_found_by_name_then_by_alias() -> None:
    def of(name: str, kind: str = "int", **more: Any) -> Any:
        return field(kind) | {"name": name} | more

    reader = [of("A", "long"), of("B", "long"), of("D", "long", aliases=["C"])]
    for name, member in (("A", "member0"), ("B", "member1"), ("C", "member2")):
        found = read(of(name), reader, varint(5))
        assert found[member] == {"f": 5}
        assert list(found.values()).count(None) == 2
    assert "cannot become" in read(of("E"), reader, varint(5))


def test_enums_become_texts_and_unknown_symbols_the_default() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    reader = {"type": "enum", "name": "x.E", "symbols": ["Z", "B"]}
    assert read(writer, reader, varint(1)) == "B"
    assert "lacks the symbol" in read(writer, reader, varint(0))
    assert read(writer, reader | {"default": "Z"}, varint(0)) == "Z"
    for wrong in (-1, 2, 2**62):
        assert "no symbol of that number" in read(writer, reader, varint(wrong))


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("int", -5, -5),
        ("double", 1, 1.0),
        ("string", "süß", "süß"),
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ("boolean", True, True),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["null", "int"], 5, 5),
        (["int", "string"], "a", {"member0": None, "member1": "a"}),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "string"}, {"a": "b"}, [("a", "b")]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
        (logical("bytes", "decimal", precision=4, scale=2), "\u0004\u00d2", Decimal("12.34")),
        (field("int", default=3) | {"name": "N"}, {}, {"f": 3}),
        (field(["null", "int"]) | {"name": "N"}, {"f": 4}, {"f": 4}),
    ],
)
def test_a_field_that_the_writer_lacks_has_its_default(
    kind: Any, default: Any, expected: Any
) -> None:
    writer = {"type": "record", "name": "R", "fields": []}
    assert read(writer, field(kind, default=default), b"") == {"f": expected}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 2**31),
        ("int", True),
        ("int", None),
        ("float", 1e300),
        ("bytes", "€"),
        ("string", 1),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, ["a"]),
        (field("int") | {"name": "N"}, {}),
        (["null", "int"], "a"),
    ],
)
def test_a_default_of_another_type_is_refused_at_once(kind: Any, default: Any) -> None:
    with pytest.raises(SchemaError, match=r"^R\.f"):
        AvroDecoder(json.dumps(field(kind, default=default)), None, bytes_max=1024)


def test_fields_are_found_by_name_then_by_alias() -> None:
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    }
    reader = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "c", "type": "string", "aliases": ["x", "b"]},
            {"name": "a", "type": "long", "aliases": ["b"]},
        ],
    }
    octets = octets_of(writer, {"a": 5, "b": "text"})
    assert read(writer, reader, octets) == {"c": "text", "a": 5}


def test_a_name_wins_over_the_alias_of_an_earlier_field() -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "f2", "type": "int"}]}
    reader = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "f1", "type": "int", "aliases": ["f2"], "default": 0},
            {"name": "f2", "type": "int", "default": 9},
        ],
    }
    assert read(writer, reader, octets_of(writer, {"f2": 5})) == {"f1": 0, "f2": 5}


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "int", "string of the writer cannot become int"),
        ("long", "int", "long of the writer cannot become int"),
        ("int", {"type": "array", "items": "int"}, "int of the writer cannot become array"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "fixed F of the writer cannot become fixed F",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "G", "size": 2},
            "the writer's type is F, which is neither G nor an alias of it",
        ),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            logical("bytes", "decimal", precision=4, scale=1),
            "a decimal of scale 2 of the writer cannot become one of scale 1",
        ),
        (
            logical("long", "timestamp-nanos"),
            logical("long", "timestamp-micros"),
            "timestamp-nanos of the writer cannot become timestamp-micros",
        ),
        (["null", "string"], "int", "of the writer cannot become int"),
        ("string", ["null", "int"], "string of the writer cannot become one of [null, int]"),
    ],
)
def test_types_that_do_not_fit_are_refused_by_their_path(
    writer: Any, reader: Any, message: str
) -> None:
    found = read(field(writer), field(reader), b"")
    assert found.startswith("its schema does not fit that of the rows: R.f: ")
    assert message in found


def test_defaults_of_writers_are_not_read() -> None:
    assert read(field("int", default="x"), field("int"), varint(5)) == {"f": 5}


@pytest.mark.parametrize(
    ("kind", "path", "octets"),
    [
        ("null", "value.f", b""),
        (["null"], "value.f", b"\0"),
        ({"type": "array", "items": "null"}, r"value.f\[\]", b"\2\0"),
    ],
)
def test_types_that_are_only_null_are_passed_or_refused_by_their_path(
    kind: Any, path: str, octets: bytes
) -> None:
    with pytest.raises(SchemaError, match=f"^{path}: columns cannot have the type null alone"):
        AvroDecoder(json.dumps(field(kind)), None, bytes_max=1024)
    assert read(field(kind), field("int") | {"fields": []}, octets) == {}


def test_a_missing_field_without_a_default_is_named() -> None:
    writer = {"type": "record", "name": "R", "fields": []}
    assert "R.f: the writer's schema lacks the field" in read(writer, field("int"), b"")


@pytest.mark.parametrize(
    ("size", "value", "digits"),
    [(2, 9999, 4), (2, -9999, 4), (16, 10**38 - 1, 38), (16, 1 - 10**38, 38), (20, -5, 38)],
)
def test_decimals_have_up_to_38_digits(size: int, value: int, digits: int) -> None:
    kind = logical("fixed", "decimal", name="F", size=size, precision=digits, scale=2)
    octets = value.to_bytes(size, "big", signed=True)
    assert read(kind, kind, octets) == Decimal(value).scaleb(-2, Context(prec=80))
    if digits < 38:
        over = (abs(value) + 1).to_bytes(size, "big", signed=True)
        assert "more digits than its precision" in read(kind, kind, over)


def test_decimals_of_more_digits_are_refused_by_name() -> None:
    kind = logical("bytes", "decimal", precision=39, scale=2)
    with pytest.raises(SchemaError, match=r"value.f: a decimal of 39 digits"):
        AvroDecoder(json.dumps(field(kind)), None, bytes_max=1024)
    for octets in (b"", b"\x7f" + b"\xff" * 15, b"\x80" + bytes(15), b"\1" + bytes(16)):
        own = field(logical("bytes", "decimal", precision=38, scale=2))
        assert "more digits" in read(own, own, varint(len(octets)) + octets)


def test_defaults_of_types_that_are_used_often_are_made_once() -> None:
    listed = {"type": "array", "items": "int"}
    item = field(listed, default=[1] * 20_000) | {"name": "I"}
    uses = [{"name": f"u{n}", "type": "I"} for n in range(2_000)]
    reader = {"type": "record", "name": "R", "fields": [{"name": "i", "type": item}, *uses]}
    empty = {"type": "record", "name": "I", "fields": []}
    writer = reader | {"fields": [{"name": "i", "type": empty}, *uses]}
    # Made for each use they take longer than a test may.
    parsed = parse_schema(json.dumps(reader), with_defaults=True)
    assert resolve(parse_schema(json.dumps(writer)), parsed)


def test_defaults_that_multiply_have_a_limit() -> None:
    many = [{}] * 10_000
    item = field("string", default="x" * 10_000) | {"name": "I"}
    reader = field({"type": "array", "items": item}, default=many)
    with pytest.raises(SchemaError, match="its defaults have more than"):
        parse_schema(json.dumps(reader), with_defaults=True)


def test_comparing_huge_unions_has_a_limit() -> None:
    branches = [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(1500)]
    others = [{"type": "fixed", "name": f"G{n}", "size": 1} for n in range(1500)]
    assert "too many unions to compare" in read(branches, others, b"")
