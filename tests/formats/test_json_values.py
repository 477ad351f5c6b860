"""JSON documents as columns."""

import itertools
import json
import random
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.decoding import DecodedColumn
from spark_groups.formats.frames import unframed
from spark_groups.formats.json_values import PART_ROWS, JsonDecoder
from workshop.fuzz.json_and_protobuf import DDL, document, documents, feed_documents
from workshop.fuzz.mutation import drawn

BYTES_MAX = 1 << 24
UTC = timezone.utc
EARLY = datetime(2020, 1, 2, tzinfo=UTC)


def decoded(ddl: str, *values: bytes | None, **options: Any) -> DecodedColumn:
    decoder = JsonDecoder(ddl, bytes_max=BYTES_MAX, **options)
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.arrow_type
    assert len(found.values) == len(values)
    return found


def only(ddl: str, value: str, **options: Any) -> Any:
    """Return what one column gets."""
    found = decoded(ddl, f'{{"a":{value}}}'.encode(), **options)
    assert not found.refused, found.refused
    return found.values.to_pylist()[0]["a"]


def reason(ddl: str, value: bytes) -> str:
    found = decoded(ddl, value)
    assert found.values.null_count == 1
    return found.refused[0].reason


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("int", "null", None),
        ("double", "1e400", float("inf")),
        ("double", '"-INF"', float("-inf")),
        ("double", "9" * 400, float("inf")),
        ("double", "-" + "9" * 5000, float("-inf")),
        ("string", "9" * 5000, "9" * 5000),
        ("string", "1.50", "1.50"),
        ("string", '{"k": [1, 2.0, null, "é\\n"]}', '{"k":[1,2.0,null,"é\\n"]}'),
        ("string", '"\\u0000"', "\0"),
        ("decimal(10,2)", "1.235", Decimal("1.24")),
        ("decimal(10,2)", '"1.2"', Decimal("1.20")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("date", '"2020-1-2"', date(2020, 1, 2)),
        ("date", '"2020-01-02T05:00:00Z"', date(2020, 1, 2)),
        ("timestamp", '"2020-01-02T03:04:05Z"', datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("timestamp", '"2020-01-02 03:04:05+02"', datetime(2020, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("timestamp", '"2020-01-02"', EARLY),
        (
            "timestamp",
            '"2020-01-02T00:00:00.123456789Z"',
            EARLY.replace(microsecond=123456),
        ),
        ("timestamp", "1577934245", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("timestamp_ntz", '"2020-01-02T03:04:05"', datetime.fromisoformat("2020-01-02T03:04:05")),
        ("binary", '"YWJj"', b"abc"),
        ("array<int>", "[1, null]", [1, None]),
        ("array<array<date>>", '[[], ["2020-01-02"], null]', [[], [date(2020, 1, 2)], None]),
        ("map<string,int>", '{"b": 1, "a": null}', [("b", 1), ("a", None)]),
        ("map<string,array<struct<x:int>>>", '{"b": [{"x": 1}]}', [("b", [{"x": 1}])]),
        ("struct<x:int,t:timestamp>", '{"x": 1, "more": 2}', {"x": 1, "t": None}),
    ],
    ids=itertools.count(),
)
def test_a_column_gets_its_value(column: str, value: str, expected: object) -> None:
    assert only(f"a {column}", value) == expected


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("int", '"1"', "$.a has a string that does not fit the type int"),
        ("int", "1.0", "$.a has a number that does not fit the type int"),
        ("int", "2147483648", "$.a has a number that does not fit the type int"),
        ("boolean", "1", "$.a has a number that does not fit the type boolean"),
        ("double", '"1.5"', "$.a has a string that does not fit the type double"),
        ("decimal(10,2)", "123456789", "$.a has a number that does not fit the type decimal(10,2)"),
        ("date", "18262", "$.a has a number that does not fit the type date"),
        ("timestamp", '"12:00"', "$.a has a string that does not fit the type timestamp"),
        ("timestamp", "1577836800000", "$.a has a number that does not fit the type timestamp"),
        ("timestamp", '"0000-01-01"', "$.a has a string that does not fit the type timestamp"),
        ("timestamp_ntz", '"2020-01-02T00:00:00Z"', "$.a has a string that does not fit"),
        ("binary", '"?"', "$.a has a string that does not fit the type binary"),
        ("string", '"\\ud800"', "$.a has a string that does not fit the type string"),
        ("array<int>", "5", "$.a has a number that does not fit the type array"),
        ("array<int>", '[1, "x"]', "$.a[] has a string that does not fit the type int"),
        ("struct<x:int>", '{"x": true}', "$.a.x has true or false that does not fit the type int"),
        ("map<string,int>", '{"k": {}}', "$.a.* has an object that does not fit the type int"),
    ],
)
def test_a_value_that_does_not_fit_refuses_the_record(column: str, value: str, fault: str) -> None:
    assert fault in reason(f"a {column}", f'{{"a":{value}}}'.encode())


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"", "not JSON: Expecting value"),
        (b" \n", "not JSON: Expecting value"),
        (b'{"a":1', "not JSON: Expecting ','"),
        (b'{"a":1}{"a":2}', "not JSON: Extra data"),
        (b'{"a":1} null {"a":2}', "not JSON: Extra data"),
        (b'{"a":1}\n{"a":2}', "not JSON: Extra data"),
        (b'{"a":1}\0', "not JSON: Extra data"),
        (b'{"a":Inf}', "not JSON: Expecting value"),
        (b'{"z":-NaN}', "not JSON: Expecting value"),
        (b'\xef\xbb\xbf{"a":1}', "not JSON: Expecting value"),
        (b'{"z":' + b"9" * 5000 + b",}", "not JSON: Expecting property name"),
        (b"[]", "$ has an array that does not fit the type struct"),
        (b"5", "$ has a number that does not fit the type struct"),
        (b'{"a":1,"z":"\xff"}', "not UTF-8 at byte 12"),
        (b'{"z":' + b"[" * 300 + b"]" * 300 + b"}", "nested deeper than 200"),
        (b'{"z":' + b"[" * 100_000, "nested deeper than 200"),
    ],
    ids=itertools.count(),
)
def test_all_but_one_object_is_refused_among_others(value: bytes, fault: str) -> None:
    good = b'{"a":7}'
    found = decoded("a int", good, value, None, good, value, good)
    assert [row and row["a"] for row in found.values.to_pylist()] == [7, None, None, 7, None, 7]
    assert sorted(found.refused) == [1, 4]
    assert fault in found.refused[1].reason


def test_an_object_may_be_pretty_null_doubled_in_fields_or_have_quotes_with_brackets() -> None:
    pretty = json.dumps({"a": 1, "z": ["[" * 300, {}]}, indent=2).encode()
    found = decoded("a int", b" \t" + pretty + b"\r\n", b"null", b'{"a":1,"a":2}', b"{}")
    long = decoded("a int", b'{"a":1,"z":' + b"9" * 5000 + b"}", b'{"a":1,"a":2}')
    assert long.values.to_pylist() == [{"a": 1}, {"a": 2}]
    assert not found.refused
    assert found.values.to_pylist() == [{"a": 1}, None, {"a": 2}, {"a": None}]


def test_documents_cut_and_joined_elsewhere_keep_their_rows() -> None:
    """Their number alone would hide that one record has two documents, and two records have one."""
    parts = (b'{"a":1}{"a":2}', b'{"a":', b'{"a":3}}', b'{"z":"}', b'{","a":4}', b'{"a":5}')
    found = decoded("a int", *parts)
    assert list(found.refused) == [0, 1, 2, 3, 4]
    assert found.values.to_pylist()[5] == {"a": 5}


def test_times_without_a_zone_are_in_utc() -> None:
    for text in ("2026-01-02T03:04:05", "2026-03-29 02:30:00.5", "1850-01-01"):
        expected = datetime.fromisoformat(text).replace(tzinfo=UTC)
        assert only("a timestamp", json.dumps(text)) == expected
        # Python reads both.
        both = decoded("a timestamp", f'{{"a":"{text}"}}'.encode(), b'{"a":0}')
        assert both.values.to_pylist()[0]["a"] == expected


def test_frames_are_cut_off_and_faults_carry_the_schema_id() -> None:
    frame = b"\0\0\0\1\2"
    values = (frame + b'{"a":1}', b'{"a":1}', None, frame + b"{", b"\0\0", b"", frame)
    found = decoded("a int", *values, framed=True)
    assert found.values.to_pylist() == [{"a": 1}, *[None] * 6]
    assert {row: fault.schema_id for row, fault in found.refused.items()} == {
        1: None,
        3: 258,
        4: None,
        5: None,
        6: 258,
    }
    assert "it begins with byte 123" in found.refused[1].reason
    assert "it is too short" in found.refused[5].reason


def test_a_call_decodes_as_many_rows_as_its_memory_holds() -> None:
    value = json.dumps({"a": "x" * 1000}).encode()
    column = pa.array([value] * 100, pa.binary())
    decoder = JsonDecoder("a string", bytes_max=20_000)
    first = len(decoder.decode(column).values)
    assert 5 <= first < 20
    assert len(JsonDecoder("a string", bytes_max=1).decode(column).values) == 1
    assert len(decoder.decode(column.slice(0, 0)).values) == 0


def test_what_values_become_is_within_the_memory_that_was_reckoned() -> None:
    wide = ",".join(f"c{number}:bigint" for number in range(20))
    value = b'{"a":[' + b",".join([b"{}"] * 100) + b"]}"
    decoder = JsonDecoder(f"a array<struct<{wide}>>", bytes_max=1_000_000)
    found = decoder.decode(pa.array([value] * 10_000, pa.binary()))
    assert found.values.nbytes <= 1_000_000
    assert len(found.values) > 1


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5])
def test_drawn_documents_are_what_each_is_alone(share: float) -> None:
    chance = random.Random(share)
    values = [json.dumps(document(chance)).encode() for _ in range(3 * PART_ROWS)]
    values = [b"{" if chance.random() < share else each for each in values]
    together = decoded(DDL, *values)
    for row in chance.sample(range(len(values)), 100):
        alone = decoded(DDL, values[row])
        assert repr(alone.values[0].as_py()) == repr(together.values[row].as_py())
        assert alone.refused.get(0) == together.refused.get(row)


@pytest.mark.parametrize("number", range(200))
def test_changed_documents_are_decoded_alike_together_and_alone(number: int) -> None:
    feed_documents(drawn(7, "json", number, documents()))


def test_each_second_of_many_records_may_be_wrong() -> None:
    values = pa.array([b'{"a":1}', b'{"a":'] * 10_000, pa.binary())
    found = JsonDecoder("a int", bytes_max=1 << 28).decode(values)
    assert list(found.refused) == list(range(1, 20_000, 2))


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("int", b"[" * 201 + b'"' + b'\\"' * 100_000, "deeper than 200"),
        ("int", b"[" * 201 + b'"' + b'\\"' * 100_000 + b"\\", "deeper than 200"),
        ("int", b'["[' + b"[" * 201 + b"\\", "not JSON"),
        ("decimal(10,2)", b'"' + b"1" * 200_000 + b'x"}', "does not fit the type decimal(10,2)"),
        ("decimal(10,2)", b'"' + b"1" * 3_900 + b'x"}', "does not fit the type decimal(10,2)"),
    ],
    ids=itertools.count(),
)
def test_a_hostile_document_is_refused_before_the_test_times_out(
    column: str, value: bytes, fault: str
) -> None:
    assert fault in reason(f"a {column}", b'{"a":' + value)


@pytest.mark.parametrize(
    ("ddl", "fault"),
    [
        ("int", "must name columns"),
        ("a map<int,string>", r"keys of the map \$.a must be strings"),
        ("a", "the DDL is wrong"),
    ],
)
def test_a_schema_that_json_does_not_have_is_refused(ddl: str, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        JsonDecoder(ddl, bytes_max=1)


def test_frames_are_cut_off_beside_values_that_are_shorter_than_one() -> None:
    column = pa.array([None, b"", b"\0", b"\0\0\0\0\1" + b"x" * 50, b"", b"\0\0\0\0\2"])
    bodies, refused = unframed(column)
    bodies.validate(full=True)
    assert bodies.to_pylist() == [None, None, None, b"x" * 50, None, b""]
    assert list(refused) == [1, 2, 4]
