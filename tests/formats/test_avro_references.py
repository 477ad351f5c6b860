"""A schema and those that it refers to, as one schema that Avro's own reader accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastavro import parse_schema

from spark_groups.errors import SchemaError
from spark_groups.formats.avro_references import with_references


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": each} for place, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def inlined(main: Any, **references: Any) -> Any:
    texts = {name.replace("_", "."): json.dumps(each) for name, each in references.items()}
    return json.loads(with_references(json.dumps(main), texts))


def test_first_use_of_a_name_is_its_definition_and_later_ones_its_name() -> None:
    money = {"type": "fixed", "name": "shop.Money", "size": 8}
    main = record("shop.Order", "Money", {"type": "array", "items": "shop.Money"}, "string")
    found = inlined(main, shop_Money=money)
    first, second, third = (each["type"] for each in found["fields"])
    assert first == {"type": "fixed", "name": "Money", "namespace": "shop", "size": 8}
    assert second == {"type": "array", "items": "shop.Money"}
    assert third == "string"
    parse_schema(found)


def test_definition_keeps_its_namespace_where_it_is_used() -> None:
    bare = record("Bare", "int")
    other = record("Inner", "Bare", namespace="other")
    main = record("shop.Order", ["null", "other.Inner"], {"type": "map", "values": "other.Inner"})
    found = inlined(main, other_Inner=other, other_Bare={**bare, "namespace": "other"})
    assert found["fields"][0]["type"][1]["fields"][0]["type"]["namespace"] == "other"
    parse_schema(found)


def test_names_of_the_schema_itself_stay() -> None:
    main = record("Node", ["null", "Node"], {"type": "string", "logicalType": "uuid"})
    found = inlined(main, x_Y="int")
    assert found["fields"][0]["type"] == ["null", "Node"]
    assert found["fields"][1]["type"] == {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_schema_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="not JSON"):
        with_references(text, {})


@pytest.mark.parametrize("kind", [{"type": "int"}, ["null", "int"], [], None, 7])
def test_type_that_is_no_text_is_left_to_the_reader_of_schemas(kind: Any) -> None:
    assert inlined({"type": kind, "name": "A"}, x_Y="int") == {"type": kind, "name": "A"}


@pytest.mark.parametrize("more", [{"name": ["A"]}, {"name": None}, {"namespace": ["x"]}])
def test_names_that_are_no_texts_are_refused(more: Any) -> None:
    with pytest.raises(SchemaError, match="are texts"):
        inlined({**record("A", "x.Y"), **more}, x_Y="int")


def test_references_that_do_not_define_their_names_do_not_double() -> None:
    references = {f"x_R{n}": {"type": ["null", *[f"x.R{n + 1}"] * 2]} for n in range(40)}
    assert len(json.dumps(inlined("x.R0", **references))) < 5_000


def test_long_namespaces_are_not_repeated_without_limit() -> None:
    fields = [record(f"A{n}") for n in range(1_000)]
    with pytest.raises(SchemaError, match="more than 16 MiB"):
        inlined(record("R", *fields, namespace="n" * 1_000_000))
