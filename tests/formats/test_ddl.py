"""Spark's DDL and Arrow types: each made of the other."""

import itertools

import pyarrow as pa
import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.ddl import DEPTH_MAX, FIELDS_MAX, ddl_of, parse_ddl

TIMESTAMP = pa.timestamp("us", "UTC")
SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "map<string,double>": pa.map_(pa.string(), pa.float64()),
    "struct<a:int,b c:string>".replace("b c", "`b c`"): pa.struct(
        [("a", pa.int32()), ("b c", pa.string())]
    ),
}


@pytest.mark.parametrize("ddl", SIMPLE)
def test_a_type_and_its_text_are_made_of_each_other(ddl: str) -> None:
    assert parse_ddl(ddl) == SIMPLE[ddl]
    assert ddl_of(SIMPLE[ddl]) == ddl
    assert parse_ddl(f"`a.``b` {ddl}") == pa.struct([("a.`b", SIMPLE[ddl])])


@pytest.mark.parametrize(
    ("ddl", "same"),
    [
        ("a BYTE, b SHORT, c INTEGER, d LONG", "a tinyint, b smallint, c int, d bigint"),
        ("a REAL, b DEC, c NUMERIC(5)", "a float, b decimal(10,0), c decimal(5,0)"),
        ("a CHAR(3), b VARCHAR( 10 ), c TIMESTAMP_LTZ", "a string, b string, c timestamp"),
        ("a int NOT NULL COMMENT 'it''s, \\' so', b int COMMENT \"b\"", "a int, b int"),
        ("a: int,\n\tb\tstring", "a int, b string"),
        ("a STRUCT<x: INT NOT NULL COMMENT 'x', y INT>", "a struct<x:int,y:int>"),
        (
            "date date, struct int, map map<int,int>",
            "`date` date, `struct` int, `map` map<int,int>",
        ),
        ("a array < array<int > >", "a array<array<int>>"),
    ],
)
def test_spellings_of_one_schema_are_the_same(ddl: str, same: str) -> None:
    assert parse_ddl(ddl) == parse_ddl(same)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("", "character 1: expected the name of a field, found the end"),
        ("a", "character 1: expected a type that rows can have, found 'a'"),
        ("a int b", "character 7: expected the end, found 'b'"),
        ("a int, a int", "character 8: expected a name that no other field has, found 'a'"),
        ("a array<int", "character 12: expected '>', found the end"),
        ("a map<string>", "character 13: expected ',', found '>'"),
        ("a decimal(39,0)", "character 3: expected a decimal of at most 38 digits"),
        ("a decimal(3,5)", "character 3: expected a decimal of at most 38 digits"),
        ("a decimal(x)", "character 11: expected a number, found 'x'"),
        ("a variant", "character 3: expected a type that rows can have, found 'variant'"),
        ("a interval day", "character 3: expected a type that rows can have, found 'interval'"),
        ("a-b int", "character 2: expected a type, found '-'"),
        ("a int comment b", "character 15: expected the comment's text, found 'b'"),
        ("1 int", "character 1: expected the name of a field, found '1'"),
        ("ä int", "character 1: expected the name of a field, found 'ä'"),
        ("a char", "character 3: expected a type that rows can have, found 'char'"),
        ("a struct<>", "character 10: expected the name of a field, found '>'"),
        ("a `int`", "character 3: expected a type, found '`int`'"),
        ("a 'x", "character 3: expected a type, found"),
        (f"a {'array<' * (DEPTH_MAX + 1)}int{'>' * (DEPTH_MAX + 1)}", "deeper than 64"),
        (",".join(f"c{number} int" for number in range(FIELDS_MAX + 1)), "more than 10,000 fields"),
        ("x" * (1 << 21), "has 2,097,152 characters, of at most 1,048,576"),
    ],
    ids=itertools.count(),
)
def test_a_wrong_text_is_refused_with_the_place(ddl: str, reason: str) -> None:
    with pytest.raises(SchemaError, match="the DDL") as refused:
        parse_ddl(ddl)
    assert reason in str(refused.value)


def test_durations_of_protobuf_are_intervals() -> None:
    assert ddl_of(pa.duration("us")) == "interval day to second"


@pytest.mark.parametrize(
    "arrow_type", [pa.null(), pa.time64("us"), pa.timestamp("ns"), pa.uint64()]
)
def test_a_type_that_spark_does_not_have_is_refused_by_name(arrow_type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=str(arrow_type).replace("[", r"\[")):
        ddl_of(pa.struct([("a", pa.list_(arrow_type))]))
