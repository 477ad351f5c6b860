"""Compiles tables of the wire protocol into closures that write."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from spark_groups.wire.schemas.messages import STRINGS, Field, Primitive, Struct, formats, is_fixed

Writer = Callable[[bytearray, Any], None]

MAX_STRING_BYTES: Final = 32767
"""A longer string is refused by every broker, also where its length would fit."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number in groups of seven bits, least significant first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@cache
def struct_writer(schema: Struct) -> Writer:
    """Return what writes a structure: runs of fixed-width fields at once, the others one by one."""
    written = [each for each in schema.fields if each.tag is None]
    steps = tuple(
        step
        for fixed, run in groupby(written, key=is_fixed)
        for step in ([_run_writer(list(run))] if fixed else [_field_writer(e, schema) for e in run])
    )
    flexible = schema.flexible

    def write_struct(out: bytearray, values: Any) -> None:
        for step in steps:
            step(out, values)
        if flexible:
            out.append(0)

    return write_struct


def _run_writer(run: list[Field]) -> Writer:
    pack = struct.Struct(formats(run)).pack
    names = [each.name for each in run]
    if len(names) == 1:
        name = names[0]

        def write_one(out: bytearray, values: Any) -> None:
            out += pack(values[name])

        return write_one
    pick = itemgetter(*names)

    def write_run(out: bytearray, values: Any) -> None:
        out += pack(*pick(values))

    return write_run


def _field_writer(spec: Field, owner: Struct) -> Writer:
    name = spec.name
    if spec.array:
        write = _array_writer(_item_writer(spec, owner), spec.nullable, owner.flexible)
    elif isinstance(spec.kind, Struct) and spec.nullable:
        write = _nullable_struct_writer(struct_writer(spec.kind))
    else:
        write = _item_writer(spec, owner)

    def write_field(out: bytearray, values: Any) -> None:
        write(out, values[name])

    return write_field


def _item_writer(spec: Field, owner: Struct) -> Writer:
    """Return the writer of the field, or of one element of it if it is an array."""
    kind = spec.kind
    if isinstance(kind, Struct):
        return struct_writer(kind)
    if kind is Primitive.UUID:
        return _write_uuid
    if kind in STRINGS:
        compact = owner.flexible and kind is not Primitive.LEGACY_STRING
        return _string_writer(compact=compact, nullable=spec.nullable and not spec.array)
    if kind is Primitive.BYTES:
        return _write_compact_bytes
    if kind is Primitive.RECORDS:
        return _write_records
    pack = struct.Struct(">" + kind.value).pack

    def write_fixed(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write_fixed


def _write_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _write_compact_bytes(out: bytearray, value: Any) -> None:
    write_unsigned_varint(out, len(value) + 1)
    out += value


def _write_records(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
    else:
        _write_compact_bytes(out, value)


def _string_writer(*, compact: bool, nullable: bool) -> Writer:
    def write_string(out: bytearray, value: Any) -> None:
        if value is None and nullable:
            out += b"\x00" if compact else b"\xff\xff"
            return
        encoded = value.encode("utf-8")
        length = len(encoded)
        if length > MAX_STRING_BYTES:
            raise ValueError(f"a string of {length} bytes; {MAX_STRING_BYTES} is the most")
        if not compact:
            out += _INT16.pack(length)
        elif length < 0x7F:
            out.append(length + 1)
        else:
            write_unsigned_varint(out, length + 1)
        out += encoded

    return write_string


def _array_writer(write_item: Writer, nullable: bool, flexible: bool) -> Writer:
    def write_array(out: bytearray, items: Any) -> None:
        if items is None and nullable:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        if flexible:
            write_unsigned_varint(out, len(items) + 1)
        else:
            out += _INT32.pack(len(items))
        for item in items:
            write_item(out, item)

    return write_array


def _nullable_struct_writer(write: Writer) -> Writer:
    """Return the writer of a structure that may be null: one byte before it says so (KIP-893)."""

    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable
