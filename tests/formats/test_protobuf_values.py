"""Protobuf messages as columns, with Protobuf's own library as the oracle."""

import base64
import itertools
import random
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import types as kinds

from spark_groups.errors import OptionsError, SchemaError, UnknownSchemaIdError
from spark_groups.formats import protobuf_schemas
from spark_groups.formats.ddl import ddl_of
from spark_groups.formats.protobuf_values import LONG_BYTES, ProtobufDecoder
from workshop.fuzz.json_and_protobuf import (
    descriptor_sets,
    feed_descriptor_set,
    feed_messages,
    messages,
)
from workshop.fuzz.mutation import drawn
from workshop.parts.messages import (
    FIELD,
    add_field,
    add_map,
    as_set,
    class_of,
    fill,
    full_file,
    new_file,
    row_of,
)

BYTES_MAX = 1 << 26
SYNTAXES = ("proto2", "proto3", "1000", "1001")
GROUP = b"\xa3\x06"


def raw(value: pa.Scalar) -> Any:
    """Return a value with times as microseconds, and entries of maps in order."""
    if not value.is_valid:
        return None
    if kinds.is_struct(value.type):
        return {name: raw(each) for name, each in value.items()}
    if kinds.is_map(value.type):
        return sorted((raw(each["key"]), raw(each["value"])) for each in value.values)
    if kinds.is_list(value.type):
        return [raw(each) for each in value.values]
    return value.value if kinds.is_temporal(value.type) else value.as_py()


def text_of(file: Any) -> str:
    """Return a schema as a registry gives it that keeps what serializers for Python send."""
    return base64.b64encode(file.SerializeToString()).decode()


def decoder_of(file: Any, **options: Any) -> ProtobufDecoder:
    return ProtobufDecoder(as_set(file), "t.M", bytes_max=BYTES_MAX, **options)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_drawn_messages_are_what_protobufs_own_library_reads(syntax: str) -> None:
    file = full_file(syntax)
    message = class_of(file, "t.M")
    decoder = decoder_of(file)
    for share in (0.0, 0.1, 0.5, 1.0):
        chance = random.Random(share)
        values = [fill(message(), chance, share).SerializeToString() for _ in range(150)]
        found = decoder.decode(pa.array([None, *values], pa.binary()))
        found.values.validate(full=True)
        assert not found.refused
        assert found.values.type == decoder.arrow_type
        expected = [row_of(message.FromString(each)) for each in values]
        assert [raw(each) for each in found.values] == [None, *expected]


def test_columns_have_the_types_of_spark() -> None:
    ddl = {each.name: ddl_of(each.type) for each in decoder_of(full_file("proto3")).arrow_type}
    assert ddl["a_uint32"] == ddl["a_fixed32"] == ddl["wrapped_uint32"] == "bigint"
    assert ddl["a_uint64"] == ddl["a_fixed64"] == ddl["wrapped_uint64"] == "decimal(20,0)"
    assert ddl["one_e"] == ddl["wrapped_string"] == "string"
    assert ddl["one_timestamp"] == "timestamp"
    assert ddl["one_duration"] == "interval day to second"
    assert ddl["many_wrapped"] == "array<decimal(20,0)>"
    assert ddl["inners"] == "map<string,struct<x:bigint,s:string,at:timestamp>>"
    assert ddl["names"] == "map<bigint,string>"


def test_numbers_without_a_sign_keep_their_value() -> None:
    file = full_file("proto3")
    value = class_of(file, "t.M")(a_uint64=2**64 - 1, a_uint32=2**32 - 1).SerializeToString()
    row = decoder_of(file).decode(pa.array([value], pa.binary())).values[0].as_py()
    assert row["a_uint64"] == Decimal(2**64 - 1)
    assert row["a_uint32"] == 2**32 - 1


def test_an_unknown_value_of_an_enum_is_its_number_as_text() -> None:
    file = full_file("proto3")
    value = class_of(file, "t.M")(one_e=77).SerializeToString()
    assert decoder_of(file).decode(pa.array([value])).values[0].as_py()["one_e"] == "77"


def test_messages_without_fields_are_left_out() -> None:
    file = new_file("proto3")
    file.message_type.add(name="Empty")
    message = file.message_type.add(name="M")
    add_field(message, "x", "int32")
    add_field(message, "nothing", "t.Empty")
    found = decoder_of(file).decode(pa.array([b"\x08\x05\x12\x00"]))
    assert found.values.to_pylist() == [{"x": 5}]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"\x18", "unexpected EOF in varint"),
        (b"\x00\x00", "invalid field number 0"),
        (b"\x1f", "unsupported wire type"),
        (b"\x4a\x05abc", "unexpected EOF"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length in it is beyond its end"),
        (b"\x3a\x02\xff\xff", "invalid UTF-8"),
        (GROUP * 5, "unexpected EOF inside group"),
        (GROUP * LONG_BYTES, "Error parsing message"),
        (b"\xa0" * 11, "varint too large"),
    ],
    ids=itertools.count(),
)
def test_bytes_that_are_no_message_are_refused_among_others(value: bytes, fault: str) -> None:
    file = new_file("proto3")
    message = file.message_type.add(name="M")
    for kind in (
        "double",
        "double",
        "int64",
        "int64",
        "int64",
        "int64",
        "string",
        "int64",
        "bytes",
    ):
        add_field(message, f"f{len(message.field)}", kind)
    good = b"\x18\x07"
    found = decoder_of(file).decode(pa.array([good, value, None, good, value, good], pa.binary()))
    assert [row and row["f2"] for row in found.values.to_pylist()] == [7, None, None, 7, None, 7]
    assert sorted(found.refused) == [1, 4]
    assert found.refused[1].reason.startswith("it is no message t.M: ")
    assert fault in found.refused[1].reason
    assert found.refused[1] == found.refused[4]


def test_groups_nested_too_deep_for_a_stack_are_refused() -> None:
    for value in (GROUP * 3_000_000, GROUP * 500_000 + b"\xa4\x06" * 500_000):
        found = decoder_of(full_file("proto3")).decode(pa.array([value, b""], pa.binary()))
        assert list(found.refused) == [0]


def test_a_time_outside_the_years_of_python_is_refused() -> None:
    file = full_file("proto3")
    values = []
    for seconds in (0, 2**62, 253_402_300_800, 253_402_300_799):
        message = class_of(file, "t.M")()
        message.inners["a"].at.seconds = seconds
        values.append(message.SerializeToString())
    found = decoder_of(file).decode(pa.array(values))
    assert list(found.refused) == [1, 2]
    assert "outside the years 1 to 9999" in found.refused[1].reason


FRAME = b"\0\0\0\1\2"


@pytest.mark.parametrize(
    ("name", "indexes", "others"),
    [
        ("t.A", (b"\0", b"\2\0"), (b"\2\2", b"\4\0\0")),
        ("t.B", (b"\2\2",), (b"\0", b"\4\2\0")),
        ("t.B.C", (b"\4\2\2",), (b"\0", b"\2\2", b"\4\2\0", b"\xff")),
    ],
)
def test_frames_name_the_message_by_indexes(
    name: str, indexes: tuple[bytes, ...], others: tuple[bytes, ...]
) -> None:
    file = new_file("proto3")
    add_field(file.message_type.add(name="A"), "x", "int32")
    outer = file.message_type.add(name="B")
    add_field(outer, "x", "int32")
    for nested in ("D", "C"):
        add_field(outer.nested_type.add(name=nested), "x", "int32")
    decoder = ProtobufDecoder(as_set(file), name, {258: text_of(file)}.get, bytes_max=BYTES_MAX)
    good = [FRAME + each + b"\x08\x05" for each in indexes]
    bad = [FRAME + each + b"\x08\x05" for each in others]
    values = [*good, None, *bad, FRAME, FRAME[:3], b"", b"\1" + FRAME, good[0][:-1]]
    found = decoder.decode(pa.array(values, pa.binary()))
    expected = [*[{"x": 5}] * len(good), *[None] * (len(values) - len(good))]
    assert found.values.to_pylist() == expected
    assert sorted(found.refused) == list(range(len(good) + 1, len(values)))
    first = found.refused[len(good) + 1]
    assert first.schema_id == 258
    assert "schema id and message indexes in its frame name another one" in first.reason
    assert "has no frame" in found.refused[len(values) - 2].reason


def test_a_schema_id_names_the_message_of_its_own_schema() -> None:
    file, moved, other, nested = (new_file("proto3") for _ in range(4))
    message = file.message_type.add(name="M")
    add_field(message, "x", "int32")
    add_field(moved.message_type.add(name="N"), "x", "int32")
    moved.message_type.add().CopyFrom(message)
    other.message_type.add().CopyFrom(moved.message_type[0])
    nested.package = "t.M"
    nested.message_type.add().CopyFrom(message)
    texts = {1: text_of(file), 2: text_of(moved), 3: text_of(other), 4: text_of(nested)}
    asked = []

    def schema_of_id(schema_id: int) -> str:
        asked.append(schema_id)
        if schema_id not in texts:
            raise UnknownSchemaIdError(f"there is no schema id {schema_id}")
        return texts[schema_id]

    decoder = ProtobufDecoder(as_set(file), "t.M", schema_of_id, bytes_max=BYTES_MAX)
    values = [b"\0\0\0\0" + each + b"\x08\x05" for each in (b"\1\0", b"\2\2\2", b"\1\0")]
    bad = [
        b"\0\0\0\0" + each + b"\x08\x05" for each in (b"\2\0", b"\1\2\2", b"\3\0", b"\4\0", b"\5\0")
    ]
    for _ in range(2):
        found = decoder.decode(pa.array([*values, None, *bad], pa.binary()))
        assert found.values.to_pylist() == [{"x": 5}] * 3 + [None] * 6
        assert list(found.refused) == [4, 5, 6, 7, 8]
        assert found.refused[6].reason.startswith("it is no message t.M: the schema id and message")
        assert found.refused[8].reason.endswith("its schema is unknown: there is no schema id 5")
        assert found.refused[8].schema_id == 5
    assert asked == [1, 2, 3, 4, 5, 5], "the registry is asked again only for what it does not have"


TEXT = """
// message Zero {}
syntax = "proto2"; /* message Zero { */ package shop.v1;
option (about) = { text: "message Zero {" message: { a: 1 } };
import 'message Zero {';
enum Kind { message = 0; package = 1; }
message Order {
  optional string message = 1 [default = "}"];
  map<string, Line> lines = 2;
  message Line { oneof what { int32 a = 1; string b = 2; } message Part {} enum E { X = 0; } }
  extensions 100 to 200;
  message Other { reserved 1, 2; }
}
service Orders { rpc Get (Order) returns (Order) { option (x) = {}; } }
message message { optional Order order = 1; }
extend Order { optional int32 more = 100; }
"""


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("shop.v1.Order", (b"\0", b"\2\0")),
        ("shop.v1.Order.Line", (b"\4\0\0",)),
        ("shop.v1.Order.Line.Part", (b"\6\0\0\0",)),
        ("shop.v1.Order.Other", (b"\4\0\2",)),
        ("shop.v1.message", (b"\2\2",)),
        *((name, ()) for name in ("shop.v1.Zero", "Order", "shop.v1.Kind", "shop.v1.Order.E", "")),
    ],
)
def test_a_message_has_its_place_in_the_text_of_a_schema(
    name: str, prefixes: tuple[bytes, ...]
) -> None:
    assert protobuf_schemas.index_prefixes(TEXT, name) == prefixes
    for wrong in (
        TEXT[:400],
        TEXT[::-1],
        "package",
        "message {",
        "}}{",
        "AAAA",
        "/*" * 100_000,
        "message A {" * 50_000,
    ):
        protobuf_schemas.index_prefixes(wrong, name)


def test_a_call_decodes_as_many_rows_as_its_memory_holds() -> None:
    file = new_file("proto3")
    names = file.enum_type.add(name="E")
    names.value.add(name="LONG_" * 40, number=0)
    add_field(file.message_type.add(name="M"), "many", "enum t.E", is_array=True)
    value = b"\x0a\x64" + b"\0" * 100
    column = pa.array([value] * 10_000)
    decoder = ProtobufDecoder(as_set(file), "t.M", bytes_max=1_000_000)
    found = decoder.decode(column)
    assert found.values.nbytes <= 1_000_000
    assert len(found.values) > 1
    assert len(decoder.decode(column.slice(0, 0)).values) == 0


def test_each_second_of_many_records_may_be_wrong() -> None:
    values = pa.array([b"", b"\x18"] * 600, pa.binary())
    found = decoder_of(full_file("proto3")).decode(values)
    assert list(found.refused) == list(range(1, 1_200, 2))


@pytest.mark.parametrize("number", range(150))
def test_changed_messages_are_decoded_alike_together_and_alone(number: int) -> None:
    feed_messages(drawn(7, "protobuf", number, messages()))


def refusal(file: Any, name: str = "t.M") -> str:
    with pytest.raises(SchemaError) as refused:
        ProtobufDecoder(as_set(file), name, bytes_max=1)
    return str(refused.value)


def test_a_message_that_contains_itself_is_refused_by_name() -> None:
    file = new_file("proto3")
    message = file.message_type.add(name="M")
    other = file.message_type.add(name="N")
    add_field(message, "n", "t.N")
    add_map(other, "again", "string", "t.M")
    assert "message t.M contains itself by the field t.N.AgainEntry.value" in refusal(file)


@pytest.mark.parametrize("syntax", ["proto2", "1000"])
def test_a_group_is_refused_by_name(syntax: str) -> None:
    file = new_file(syntax)
    message = file.message_type.add(name="M")
    inner = message.nested_type.add(name="G")
    add_field(inner, "x", "int32")
    group = add_field(message, "g", "t.M.G")
    if syntax == "proto2":
        group.type = FIELD.TYPE_GROUP
    else:
        group.options.features.message_encoding = 2
    assert "field t.M.g is a group" in refusal(file)


def test_sets_that_cannot_be_used_are_refused() -> None:
    file = new_file("proto3")
    add_field(file.message_type.add(name="M"), "x", "int32")
    file.message_type.add(name="Empty")
    assert "has no message t.N, but t.M, t.Empty" in refusal(file, "t.N")
    assert "message t.Empty has no fields" in refusal(file, "t.Empty")
    file.dependency.append("other.proto")
    assert "lacks the file other.proto: make it with protoc --include_imports" in refusal(file)
    file.dependency[-1] = "google/protobuf/other.proto"
    assert "lacks the file google/protobuf/other.proto" in refusal(file)
    file.dependency[-1] = "t.proto"
    assert "damaged" in refusal(file)
    del file.dependency[-1]
    add_field(file.message_type[0], "y", "t.Missing")
    assert "the file t.proto of the descriptor set" in refusal(file)
    for number in range(40):
        feed_descriptor_set(drawn(5, "sets", number, descriptor_sets()))
    with pytest.raises(SchemaError, match="no FileDescriptorSet"):
        ProtobufDecoder(b"\xff", "t.M", bytes_max=1)


def test_messages_that_grow_with_each_level_are_refused() -> None:
    file = new_file("proto3")
    for level in range(20):
        message = file.message_type.add(name=f"M{level}" if level else "M")
        for number in range(9):
            add_field(message, f"f{number}", f"t.M{level + 1}" if level < 19 else "int32")
    assert "has more than 10,000 fields" in refusal(file)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ptars", None)
    with pytest.raises(OptionsError, match=r"install spark-groups\[protobuf\]"):
        ProtobufDecoder(b"", "t.M", bytes_max=1)
