"""Descriptors and messages of Protobuf for tests, fuzzing and benchmarks."""

from __future__ import annotations

import random
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

FIELD: Final = descriptor_pb2.FieldDescriptorProto
STANDARD: Final = (timestamp_pb2, duration_pb2, wrappers_pb2)
WRAPPERS: Final = (
    *("Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "Bool", "String", "Bytes"),
)
_SCALARS: Final = {
    "double": FIELD.TYPE_DOUBLE,
    "float": FIELD.TYPE_FLOAT,
    "int64": FIELD.TYPE_INT64,
    "uint64": FIELD.TYPE_UINT64,
    "int32": FIELD.TYPE_INT32,
    "bool": FIELD.TYPE_BOOL,
    "fixed64": FIELD.TYPE_FIXED64,
    "fixed32": FIELD.TYPE_FIXED32,
    "string": FIELD.TYPE_STRING,
    "bytes": FIELD.TYPE_BYTES,
    "uint32": FIELD.TYPE_UINT32,
    "sint32": FIELD.TYPE_SINT32,
    "sfixed32": FIELD.TYPE_SFIXED32,
    "sfixed64": FIELD.TYPE_SFIXED64,
    "sint64": FIELD.TYPE_SINT64,
}


def new_file(syntax: str, name: str = "t.proto") -> descriptor_pb2.FileDescriptorProto:
    """Return a file of the package `t` that imports Google's standard files.

    Args:
        syntax: proto2, proto3, or the number of an edition.
        name: The name of the file.
    """
    file = descriptor_pb2.FileDescriptorProto(name=name, package="t", syntax=syntax)
    if syntax.isdigit():
        file.syntax, file.edition = "editions", int(syntax)
    if syntax == "proto2":
        file.ClearField("syntax")
    file.dependency.extend(each.DESCRIPTOR.name for each in STANDARD)
    return file


def add_field(message: Any, name: str, kind: str, *, is_array: bool = False, **more: Any) -> Any:
    """Add a field with the next number, and return it.

    Args:
        message: The descriptor of the message.
        name: The name of the field.
        kind: A scalar type, `enum E`, or the full name of a message.
        is_array: Whether it is repeated.
        more: Further fields of the descriptor.
    """
    label = FIELD.LABEL_REPEATED if is_array else FIELD.LABEL_OPTIONAL
    field = message.field.add(name=name, number=len(message.field) + 1, label=label, **more)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = FIELD.TYPE_ENUM if kind.startswith("enum ") else FIELD.TYPE_MESSAGE
        field.type_name = f".{kind.removeprefix('enum ')}"
    return field


def add_map(message: Any, name: str, key: str, item: str) -> None:
    """Add a map."""
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", key)
    add_field(entry, "value", item)
    add_field(message, name, f"t.{message.name}.{entry.name}", is_array=True)


def full_file(syntax: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with the message `t.M`, which has every kind of field.

    Args:
        syntax: proto2, proto3, or the number of an edition.
    """
    file = new_file(syntax)
    names = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE", "TWO")):
        names.value.add(name=name, number=number)
    inner = file.message_type.add(name="I")
    add_field(inner, "x", "int64")
    add_field(inner, "s", "string")
    add_field(inner, "at", "google.protobuf.Timestamp")
    message = file.message_type.add(name="M")
    for kind in _SCALARS:
        add_field(message, f"a_{kind}", kind)
    for kind in ("int64", "double", "string", "enum t.E", "t.I", "google.protobuf.Timestamp"):
        add_field(message, f"many_{kind.split('.')[-1].lower()}", kind, is_array=True)
    for kind in ("enum t.E", "t.I", "google.protobuf.Timestamp", "google.protobuf.Duration"):
        add_field(message, f"one_{kind.split('.')[-1].lower()}", kind)
    for kind in WRAPPERS:
        add_field(message, f"wrapped_{kind.lower()}", f"google.protobuf.{kind}Value")
    add_field(message, "many_wrapped", "google.protobuf.UInt64Value", is_array=True)
    add_map(message, "inners", "string", "t.I")
    add_map(message, "names", "uint32", "enum t.E")
    message.oneof_decl.add(name="choice")
    for kind in ("int32", "string", "t.I"):
        add_field(message, f"choice_{kind.split('.')[-1].lower()}", kind, oneof_index=0)
    if syntax == "proto3":
        message.oneof_decl.add(name="_maybe")
        add_field(message, "maybe", "int32", oneof_index=1, proto3_optional=True)
    elif syntax != "proto2":
        plain = add_field(message, "plain", "int32")
        plain.options.features.field_presence = descriptor_pb2.FeatureSet.IMPLICIT
    return file


def as_set(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    """Return a serialized set of files."""
    octets: bytes = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return octets


def standard_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """Return Google's standard files, which a set must have that is used without our own."""
    found = []
    for each in STANDARD:
        file = descriptor_pb2.FileDescriptorProto()
        each.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return found


def class_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """Return the class of a message of a file."""
    pool = descriptor_pool.DescriptorPool()
    for each in STANDARD:
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def fill(message: Any, chance: random.Random, share: float = 0.5) -> Any:
    """Set some fields of a message to drawn values, and return it.

    Args:
        message: The message.
        chance: What it is drawn from.
        share: How many of the fields.
    """
    has_choice = False
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.name.startswith("choice"):
            if has_choice:
                continue
            has_choice = chance.random() < 0.4
            if not has_choice:
                continue
        elif chance.random() > share:
            continue
        _set(message, field, chance)
    return message


def _set(message: Any, field: Any, chance: random.Random) -> None:
    name, inner = field.name, field.message_type
    count = chance.randrange(4)
    if inner is not None and inner.GetOptions().map_entry:
        for _ in range(count):
            key = (
                chance.choice(("a", "b", ""))
                if name == "inners"
                else chance.choice((0, 7, 2**32 - 1))
            )
            if name == "inners":
                fill(getattr(message, name)[key], chance)
            else:
                getattr(message, name)[key] = chance.randrange(3)
    elif field.is_repeated:
        for _ in range(count):
            if inner is None:
                getattr(message, name).append(_scalar(field, chance))
            else:
                _fill_inner(getattr(message, name).add(), chance)
    elif inner is not None:
        getattr(message, name).SetInParent()
        _fill_inner(getattr(message, name), chance)
    else:
        setattr(message, name, _scalar(field, chance))


def _fill_inner(message: Any, chance: random.Random) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = chance.choice((0, -1, 1_700_000_000, 253_402_300_799, -62_135_596_800))
        message.nanos = chance.choice((0, 1_000, 999_999_999))
    elif name == "google.protobuf.Duration":
        sign = chance.choice((1, -1))
        message.seconds = sign * chance.choice((0, 1, 315_576_000_000))
        message.nanos = sign * chance.choice((0, 1_000, 999_999_000))
    else:
        fill(message, chance)


def _scalar(field: Any, chance: random.Random) -> Any:
    unsigned = field.type in (
        FIELD.TYPE_UINT32,
        FIELD.TYPE_UINT64,
        FIELD.TYPE_FIXED32,
        FIELD.TYPE_FIXED64,
    )
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    match field.cpp_type:
        case field.CPPTYPE_STRING if field.type == FIELD.TYPE_BYTES:
            return chance.choice((b"", b"\0\xff", b"x" * 50))
        case field.CPPTYPE_STRING:
            return chance.choice(("", "größe", "x" * 50, "\0"))
        case field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return chance.choice((0.0, 1.5, -0.25, float("inf")))
        case field.CPPTYPE_ENUM:
            return chance.randrange(3)
    ends = (0, 1, (1 << bits) - 1) if unsigned else (0, -1, (1 << bits - 1) - 1, -(1 << bits - 1))
    return chance.choice(ends)


def row_of(message: Any) -> dict[str, Any]:
    """Return the row of a message by Protobuf's own library: times as microseconds.

    Args:
        message: The message.
    """
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            item = inner.fields_by_name["value"]
            row[field.name] = sorted((key, _plain(item, each)) for key, each in value.items())
        elif field.is_repeated:
            row[field.name] = [_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _plain(field, value)
    return row


def _plain(field: Any, value: Any) -> Any:
    if field.type == FIELD.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        # Parts of a microsecond are cut off.
        nanos = value.nanos if name.endswith("Timestamp") else abs(value.nanos)
        micros = nanos // 1_000 * (-1 if value.nanos < 0 else 1)
        return value.seconds * 1_000_000 + micros
    return value.value if name.startswith("google.protobuf.") else row_of(value)
