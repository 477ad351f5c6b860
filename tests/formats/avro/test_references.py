"""A schema and those that it refers to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.schema import Primitive, parse_schema, with_references


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": each} for place, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def parsed(main: Any, **references: Any) -> Any:
    texts = {name.replace("_", "."): json.dumps(each) for name, each in references.items()}
    return parse_schema(with_references(json.dumps(main), texts))


def test_every_use_of_a_name_is_its_definition() -> None:
    money = {"type": "fixed", "name": "shop.Money", "size": 8}
    main = record("shop.Order", "Money", {"type": "array", "items": "shop.Money"}, "string")
    first, second, third = (each.type for each in parsed(main, shop_Money=money).fields)
    assert first == second.item == Primitive("fixed", size=8, name="shop.Money")
    assert third == Primitive("string")


def test_definition_has_a_namespace_of_its_own_at_each_use() -> None:
    bare = record("Bare", "int", namespace="other")
    inner = record("Inner", "Bare", namespace="other")
    main = record("shop.Order", ["null", "other.Inner"], {"type": "map", "values": "other.Inner"})
    first, second = (each.type for each in parsed(main, other_Inner=inner, other_Bare=bare).fields)
    assert first.branches[1] is second.item
    assert second.item.fields[0].type.name == "other.Bare"
    assert parsed(record("shop.A", "B"), B=record("B")).fields[0].type.name == "B"


def test_definition_in_the_schema_itself_comes_first() -> None:
    own = {"type": "enum", "name": "x.E", "symbols": ["OWN"]}
    other = {"type": "enum", "name": "x.E", "symbols": ["OTHER"]}
    fields = parsed(record("x.A", own, "E"), x_E=other).fields
    assert [each.type.symbols for each in fields] == [("OWN",)] * 2


def test_schemas_that_refer_to_each_other_contain_themselves() -> None:
    with pytest.raises(SchemaError, match=r"^x.A.f0.f0: the type x.A contains itself"):
        parsed(record("x.A", "B"), x_B=record("x.B", "A"), x_A=record("x.A", "B"))


def test_reference_that_does_not_define_its_name_is_refused() -> None:
    references = {f"x_R{n}": {"type": ["null", *[f"x.R{n + 1}"] * 2]} for n in range(20)}
    with pytest.raises(SchemaError, match=r'the type "x.R20" is not defined'):
        parsed("x.R0", **references)
    with pytest.raises(SchemaError, match=r'the type "x.R" is not defined'):
        parsed("x.R", x_R="x.R")


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    for texts in ((text, {}), ('"int"', {"x.Y": text})):
        with pytest.raises(SchemaError, match="not JSON"):
            with_references(*texts)


@pytest.mark.parametrize("references", ["7", '["x.A"]', "null"])
def test_references_without_names_are_refused(references: str) -> None:
    with pytest.raises(SchemaError, match="the references of a schema have names"):
        parse_schema(f'{{"schema": "x.A", "references": {references}}}')


def test_parts_of_references_count() -> None:
    """Each of ten levels of nine uses is a small text, and all are billions of columns."""
    levels = {f"T{n}": record(f"T{n}", *[f"T{n - 1}"] * 9) for n in range(1, 11)}
    with pytest.raises(SchemaError, match="more than 10000 types"):
        parsed("T10", T0=record("T0"), **levels)
