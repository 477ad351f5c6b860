"""Schemas of Avro: names, logical types, the errors that name a path, and the limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.schema import (
    DEPTH_MAX,
    TEXT_BYTES_MAX,
    Enumeration,
    Items,
    Primitive,
    Record,
    Union,
    parse_schema,
)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    listed = [{"name": f"f{index}", "type": each} for index, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": listed, **more}


def parsed(schema: Any) -> Any:
    return parse_schema(json.dumps(schema))


def types_of(schema: Any) -> list[Any]:
    return [field.type for field in parsed(schema).fields]


def test_names_are_resolved_in_the_namespace_where_they_are_used() -> None:
    color = {"type": "enum", "name": "Color", "symbols": ["RED"], "aliases": ["Tint", "x.Hue"]}
    schema = record(color, "Color", "a.b.Color", name="R", namespace="a.b")
    expected = Enumeration("a.b.Color", ("a.b.Tint", "x.Hue"), ("RED",), None)
    assert types_of(schema) == [expected] * 3
    assert parsed(schema).name == "a.b.R"
    assert parsed(record(name="c.R", namespace="a.b")).name == "c.R"


def test_types_may_be_written_as_objects_of_types() -> None:
    assert parsed({"type": {"type": "array", "items": {"type": {"type": "int"}}}}) == Items(
        Primitive("int"), is_map=False
    )
    assert parsed({"type": ["null", "int"]}) == Union((Primitive("null"), Primitive("int")))
    assert isinstance(parsed({"type": "error", "name": "E", "fields": []}), Record)


@pytest.mark.parametrize(
    ("schema", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp-micros"),
        ({"type": "long", "logicalType": "date"}, ""),
        ({"type": "int", "logicalType": "no-such"}, ""),
        ({"type": "int", "logicalType": ["date"]}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, ""),
        ({"type": "bytes", "logicalType": "decimal"}, ""),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, ""),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4},
            "decimal",
        ),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, ""),
    ],
)
def test_logical_types_that_are_invalid_are_ignored(schema: Any, logical: str) -> None:
    assert parsed(schema).logical == logical


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not JSON in UTF-8"),
        ("9" * 5000, "is not JSON in UTF-8"),
        ("[" * 100_000, "is not JSON in UTF-8"),
        (chr(34) + r"\ud800" + chr(34), "is not JSON in UTF-8"),
        ("1", "the schema: it needs a type, which is not 1"),
        ("{}", "which is not null"),
        ('"X"', 'the type "X" is not defined before it is used'),
        ('{"type": "array"}', 'the schema: it needs "items"'),
        ('{"type": "record", "name": "R"}', 'R: it needs "fields"'),
        ('{"type": "record", "fields": []}', 'it needs "name"'),
        ('{"type": "record", "name": "R", "fields": {}}', '"fields" is a list, not {}'),
        ('{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "name of its own"),
        ('{"type": "record", "name": "R", "fields": [{"name": "f"}]}', 'R.f: it needs "type"'),
        ('{"type": "enum", "name": "E", "symbols": []}', "an enum needs different symbols"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "needs different symbols"),
        ('{"type": "enum", "name": "E", "symbols": [1]}', '"symbols" is a list of texts'),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', 'default "B"'),
        ('{"type": "fixed", "name": "F", "size": -1}', "the size of a fixed type"),
        ('{"type": "fixed", "name": "F", "size": 1e9}', "the size of a fixed type"),
        ("[]", "a union needs branches"),
        ('["int", "int"]', "a union needs branches of different types"),
        ('["int", ["string"]]', "none of which is a union"),
        ('{"type": "fixed", "name": "int", "size": 1}', "the type int is defined twice"),
    ],
)
def test_malformed_schemas_are_refused_in_words(schema: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(schema)
    assert message in str(caught.value)


def test_a_path_leads_to_the_problem() -> None:
    inner = record({"type": "map", "values": ["null", "Missing"]}, name="Inner")
    with pytest.raises(SchemaError, match=r'^a.Outer.f0\[\].f0{}: the type "Missing"'):
        parsed(record({"type": "array", "items": inner}, name="a.Outer"))


def test_types_defined_twice_and_fields_with_one_name_are_refused() -> None:
    twice = {"type": "fixed", "name": "F", "size": 1}
    with pytest.raises(SchemaError, match=r"R.f1: the type F is defined twice"):
        parsed(record(twice, twice))
    with pytest.raises(SchemaError, match="a name of its own"):
        parsed({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2})


def test_recursive_types_are_refused_by_name() -> None:
    schema = record(["null", "Node"], name="n.Node")
    schema["namespace"] = "n"
    with pytest.raises(SchemaError, match=r"the type n.Node contains itself"):
        parsed(schema)


def test_large_and_deep_schemas_are_refused() -> None:
    with pytest.raises(SchemaError, match="more than 1048576 bytes"):
        parse_schema('"' + "ü" * (TEXT_BYTES_MAX // 2) + '"')
    deep: Any = "int"
    for _ in range(DEPTH_MAX):
        deep = {"type": "array", "items": deep}
    parsed(deep)
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        parsed({"type": "array", "items": deep})


def test_a_named_type_counts_as_often_as_it_is_used() -> None:
    """Ten levels of ten uses each are a small text, and ten billion columns."""
    below: Any = record(name="T0")
    for level in range(1, 11):
        below = record(below, *[f"T{level - 1}"] * 9, name=f"T{level}")
    with pytest.raises(SchemaError, match="more than 10000 types"):
        parsed(below)
    chained = [record(name="C0"), *(record(f"C{n - 1}", name=f"C{n}") for n in range(1, 70))]
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        parsed(record(*chained))
