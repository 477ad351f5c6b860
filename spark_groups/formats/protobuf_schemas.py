"""Descriptors of Protobuf messages that rows can have, from a serialized set of files."""

from __future__ import annotations

import base64
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.descriptor import (  # type: ignore[import-untyped]
    Descriptor,
    FieldDescriptor,
)
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.schema import varint

BYTES_MAX: Final = 1 << 22
FIELDS_MAX: Final = 10_000
DEPTH_MAX: Final = 64
_STANDARD: Final = tuple(
    descriptor_pb2.FileDescriptorProto.FromString(
        importlib.import_module(f"google.protobuf.{each}_pb2").DESCRIPTOR.serialized_pb
    )
    for each in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context"),
        *("struct", "timestamp", "type", "wrappers"),
    )
)
"""Google's own files, which sets need not have."""
_OF_EDITIONS: Final = frozenset(
    {"edition", "options", "extension", "extension_range", "service", "default_value"}
    | {"source_code_info"}
)
_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|([\w.]+|[{}=])""", re.DOTALL
)
"""A word or mark of a file of Protobuf; without a group: a comment or a text."""


def message_of(descriptor_set: bytes, name: str) -> Descriptor:
    """Return the descriptor of a message that rows can have, in files of proto2 or proto3.

    Args:
        descriptor_set: A serialized `FileDescriptorSet`.
        name: The full name of the message.

    Raises:
        SchemaError: There is none, or rows cannot have it.
    """
    if len(descriptor_set) > BYTES_MAX:
        raise SchemaError(f"the descriptor set has more than {BYTES_MAX:,} bytes")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
        return _message(files, name)
    except DecodeError as error:
        raise SchemaError("the bytes are no FileDescriptorSet of protoc") from error
    except (TypeError, ValueError, LookupError) as error:
        raise SchemaError(f"the descriptor set is damaged: {error}") from error


def _message(files: list[descriptor_pb2.FileDescriptorProto], name: str) -> Descriptor:
    pool = _pool(files)
    try:
        message = pool.FindMessageTypeByName(name)
    except KeyError as error:
        names = ", ".join(
            f"{each.package}.{message.name}".lstrip(".")
            for each in files
            for message in each.message_type[:20]
        )
        raise SchemaError(f"the descriptor set has no message {name}, but {names}") from error
    if not message.fields:
        raise SchemaError(f"the message {name} has no fields")
    list(_fields(message, (message.full_name,)))
    # ptars knows no editions: their features are written in terms of proto3.
    plain = _pool([_without_editions(each, pool) for each in files])
    return plain.FindMessageTypeByName(name)


def fault_finder(message: Descriptor) -> Callable[[bytes], str]:
    """Return what gives the fault of a message's bytes; empty: none.

    It takes bytes from anybody: it limits how deep they are nested.
    """
    parse = message_factory.GetMessageClass(message).FromString

    def fault(value: bytes) -> str:
        try:
            parse(value)
        except DecodeError as error:
            return str(error)
        return ""

    return fault


def longest_enum_name(message: Descriptor) -> int:
    """Return how many characters the longest name of a value of an enum has."""
    enums = (each.enum_type for each in _fields(message, ()) if each.enum_type is not None)
    return max((len(value.name) for enum in enums for value in enum.values), default=0)


def index_prefixes(schema: str, name: str) -> tuple[bytes, ...]:
    """Return how the frame of a registry may name a message: its place in its schema.

    Args:
        schema: As registries return it: the text of a file, or its descriptor in base64.
        name: The full name of the message; the result is empty if the schema has none such.
    """
    try:
        octets = base64.b64decode(schema, validate=True)
        paths = _paths(descriptor_pb2.FileDescriptorProto.FromString(octets))
    except (ValueError, DecodeError):
        paths = _paths_in_text(schema)
    path = paths.get(name)
    if path is None:
        return ()
    # Numbers in a frame are encoded as Avro does it.
    full = b"".join(map(varint, (len(path), *path)))
    return (b"\0", full) if path == (0,) else (full,)


def _paths(file: descriptor_pb2.FileDescriptorProto) -> dict[str, tuple[int, ...]]:
    """Return the indexes of all messages by name."""
    found: dict[str, tuple[int, ...]] = {}
    left: list[tuple[str, tuple[int, ...], Any]]
    left = [(f"{file.package}.".lstrip("."), (), file.message_type)]
    while left:
        prefix, path, inside = left.pop()
        for place, each in enumerate(inside):
            found[prefix + each.name] = (*path, place)
            left.append((f"{prefix}{each.name}.", (*path, place), each.nested_type))
    return found


def _paths_in_text(text: str) -> dict[str, tuple[int, ...]]:
    """Return the indexes of all messages by name; entries of maps count only in descriptors."""
    tokens = ["", "", *(each[1] for each in _TOKEN.finditer(text) if each[1])]
    found: dict[str, tuple[int, ...]] = {}
    scopes: list[tuple[str, tuple[int, ...]]] = [("", ())]
    counts = Counter[tuple[int, ...]]()
    for at, token in enumerate(tokens):
        prefix, path = scopes[-1]
        if token == "package" and len(scopes) == 1 and len(tokens) > at + 1:
            scopes[0] = (f"{tokens[at + 1]}.", ())
        elif token == "}" and len(scopes) > 1:
            scopes.pop()
        elif token != "{":
            continue
        elif tokens[at - 2] == "message" and tokens[at - 1] != "=" and len(path) < DEPTH_MAX:
            name, inner = prefix + tokens[at - 1], (*path, counts[path])
            counts[path] += 1
            found[name] = inner
            scopes.append((f"{name}.", inner))
        else:
            scopes.append(scopes[-1])
    return found


def _pool(given: list[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    files = {each.name: each for each in (*_STANDARD, *given)}
    pool = descriptor_pool.DescriptorPool()
    imports = {name: [*file.dependency] for name, file in files.items()}
    for name in TopologicalSorter(imports).static_order():
        if name not in files:
            raise SchemaError(
                f"the descriptor set lacks the file {name}: make it with protoc --include_imports"
            )
        try:
            pool.Add(files[name])
        except (TypeError, ValueError) as error:
            raise SchemaError(f"the file {name} of the descriptor set: {error}") from error
    return pool


def _fields(message: Descriptor, above: tuple[str, ...]) -> Iterator[FieldDescriptor]:
    """Yield all fields of a message and of those in it.

    Raises:
        SchemaError: Rows cannot have them.
    """
    left = [(message, above)]
    count = 0
    while left:
        each, path = left.pop()
        for field in each.fields:
            count += 1
            if count > FIELDS_MAX or len(path) > DEPTH_MAX:
                raise SchemaError(
                    f"the message {message.full_name} has more than {FIELDS_MAX:,} fields, or"
                    f" messages nested deeper than {DEPTH_MAX}"
                )
            if field.type == FieldDescriptor.TYPE_GROUP:
                raise SchemaError(f"the field {field.full_name} is a group, which is not read")
            inner = field.message_type
            if inner is not None and inner.full_name in path:
                raise SchemaError(
                    f"the message {inner.full_name} contains itself by the field"
                    f" {field.full_name}: rows cannot have it"
                )
            if inner is not None:
                left.append((inner, (*path, inner.full_name)))
            yield field


def _without_editions(
    file: descriptor_pb2.FileDescriptorProto, pool: descriptor_pool.DescriptorPool
) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of an edition as one of proto3 that describes the same bytes."""
    if file.syntax != "editions":
        return file
    plain = descriptor_pb2.FileDescriptorProto()
    plain.CopyFrom(file)
    plain.syntax = "proto3"
    _clear(plain)
    prefix = f"{file.package}." if file.package else ""
    left = [(each, pool.FindMessageTypeByName(prefix + each.name)) for each in plain.message_type]
    while left:
        message, known = left.pop()
        left += [(each, known.nested_types_by_name[each.name]) for each in message.nested_type]
        for field in () if message.options.map_entry else message.field:
            if field.label == field.LABEL_REPEATED or field.HasField("oneof_index"):
                continue
            field.label = field.LABEL_OPTIONAL
            if known.fields_by_name[field.name].has_presence:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    return plain


def _clear(part: Message) -> None:
    """Clear what only an edition has in a part of a file, and in the parts of that."""
    for each, value in part.ListFields():
        if each.name in _OF_EDITIONS:
            is_entry = getattr(value, "map_entry", False)
            part.ClearField(each.name)
            if is_entry:
                part.options.map_entry = True
        elif each.message_type is not None:
            for inner in value:
                _clear(inner)
