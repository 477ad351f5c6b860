"""Descriptors of Protobuf messages that rows can have, from a serialized set of files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.descriptor import (  # type: ignore[import-untyped]
    Descriptor,
    FieldDescriptor,
    FileDescriptor,
)
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from spark_groups.errors import SchemaError

BYTES_MAX: Final = 1 << 22
FIELDS_MAX: Final = 10_000
DEPTH_MAX: Final = 64


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
    pool = _pool({each.name: each for each in files})
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
    plain = _pool({each.name: _without_editions(each, pool) for each in files})
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


def index_prefixes(message: Descriptor) -> tuple[bytes, ...]:
    """Return how the frame of a schema registry may name a message: its place in its file."""
    path: list[int] = []
    inner = message
    while inner.containing_type is not None:
        path.insert(0, [each.name for each in inner.containing_type.nested_types].index(inner.name))
        inner = inner.containing_type
    path.insert(0, list(message.file.message_types_by_name).index(inner.name))
    full = b"".join(_varint(number << 1) for number in (len(path), *path))
    return (b"\0", full) if path == [0] else (full,)


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes((*octets, number))


def _pool(files: dict[str, descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    waiting, added = dict(files), set[str]()
    while waiting:
        missing = {each for file in waiting.values() for each in file.dependency}
        missing -= added | waiting.keys()
        waiting |= {each: _standard_file(each) for each in missing}
        ready = [name for name, file in waiting.items() if added.issuperset(file.dependency)]
        if not ready:
            raise SchemaError(
                f"files of the descriptor set import each other: {', '.join(waiting)}"
            )
        for name in ready:
            try:
                pool.Add(waiting.pop(name))
            except (TypeError, ValueError) as error:
                raise SchemaError(f"the file {name} of the descriptor set: {error}") from error
            added.add(name)
    return pool


def _standard_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return one of Google's own files."""
    module = name.removesuffix(".proto").replace("/", ".")
    if not (module.startswith("google.protobuf.") and module.count(".") == 2):
        raise SchemaError(
            f"the descriptor set lacks the file {name}: make it with protoc --include_imports"
        )
    try:
        file: FileDescriptor = importlib.import_module(f"{module}_pb2").DESCRIPTOR
    except ImportError as error:
        raise SchemaError(f"the descriptor set lacks the file {name}") from error
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    return copy


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
    _clear(plain, "edition", "options", "extension", "service")
    prefix = f"{file.package}." if file.package else ""
    left = [(each, pool.FindMessageTypeByName(prefix + each.name)) for each in plain.message_type]
    enums = list(plain.enum_type)
    while left:
        message, known = left.pop()
        enums += message.enum_type
        left += [(each, known.nested_types_by_name[each.name]) for each in message.nested_type]
        _write_features(message, known)
    for enum in enums:
        _clear(enum, "options")
        for value in enum.value:
            _clear(value, "options")
    return plain


def _write_features(message: descriptor_pb2.DescriptorProto, known: Descriptor) -> None:
    """Write what features say of a message's fields in terms of proto3, and clear them."""
    is_entry = message.options.map_entry
    _clear(message, "extension", "extension_range", "options")
    if is_entry:
        message.options.map_entry = True
    for oneof in message.oneof_decl:
        _clear(oneof, "options")
    for field in message.field:
        _clear(field, "options", "default_value")
        if is_entry or field.label == field.LABEL_REPEATED or field.HasField("oneof_index"):
            continue
        field.label = field.LABEL_OPTIONAL
        if known.fields_by_name[field.name].has_presence:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _clear(part: Message, *names: str) -> None:
    for name in names:
        part.ClearField(name)
