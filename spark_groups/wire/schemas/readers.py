"""Compiles tables of the wire protocol into closures that read, and trust nothing they read.

Every length is checked against the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, Final

from spark_groups.errors import ProtocolError, printable
from spark_groups.wire.schemas.messages import STRINGS, Field, Primitive, Struct, formats, is_fixed

Values = dict[str, Any]
"""The fields of a structure by name."""

Frame = bytes | memoryview
"""What is read: of a memoryview nothing is kept but its records."""
Reader = Callable[[Frame, int], tuple[Any, int]]
"""Reads one value at a place and returns it with the place behind it."""
FieldReader = Callable[[Frame, int, Values], int]
"""Reads fields into the values at a place and returns the place behind them."""
LengthReader = Callable[[Frame, int], tuple[int, int]]

_MAX_VARINT_SHIFT: Final = 28
_OF_ANY_LENGTH: Final = frozenset({*STRINGS, Primitive.BYTES, Primitive.RECORDS})
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_unsigned_varint(frame: Frame, place: int) -> tuple[int, int]:
    """Read a number of at most five groups of seven bits.

    Raises:
        ProtocolError: It has more than 32 bits.
        IndexError: The frame ends inside it.
    """
    byte = frame[place]
    if byte < 0x80:
        return byte, place + 1
    value, shift = byte & 0x7F, 7
    while True:
        place += 1
        byte = frame[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise ProtocolError("a length of more than 32 bits")
    if value > 0xFFFFFFFF:
        raise ProtocolError("a length of more than 32 bits")
    return value, place + 1


@cache
def struct_reader(schema: Struct) -> Reader:
    """Return what reads a structure: runs of fixed-width fields at once, the others one by one."""
    steps: list[FieldReader] = []
    untagged = [each for each in schema.fields if each.tag is None]
    for fixed, run in groupby(untagged, key=is_fixed):
        if fixed:
            steps.append(_run_reader(list(run)))
        else:
            steps.extend(_field_reader(each, schema) for each in run)
    if schema.flexible:
        steps.append(_tagged_reader(schema))
    compiled = tuple(steps)

    def read_struct(frame: Frame, place: int) -> tuple[Values, int]:
        values: Values = {}
        for step in compiled:
            place = step(frame, place, values)
        return values, place

    return read_struct


def _run_reader(run: list[Field]) -> FieldReader:
    layout = struct.Struct(formats(run))
    unpack, size = layout.unpack_from, layout.size
    names = tuple(each.name for each in run)
    if len(names) == 1:
        name = names[0]

        def read_one(frame: Frame, place: int, values: Values) -> int:
            (values[name],) = unpack(frame, place)
            return place + size

        return read_one

    def read_run(frame: Frame, place: int, values: Values) -> int:
        values.update(zip(names, unpack(frame, place), strict=True))
        return place + size

    return read_run


def _field_reader(spec: Field, owner: Struct) -> FieldReader:
    name, read = spec.name, _value_reader(spec, owner)

    def read_field(frame: Frame, place: int, values: Values) -> int:
        values[name], place = read(frame, place)
        return place

    return read_field


def _value_reader(spec: Field, owner: Struct) -> Reader:
    kind = spec.kind
    if spec.array:
        read_length = _read_compact_length if owner.flexible else _read_legacy_array_length
        if isinstance(kind, Primitive) and len(kind.value) == 1:
            return _fixed_array_reader(kind, read_length, spec)
        return _array_reader(_item_reader(spec, owner), _least_bytes(kind), read_length, spec)
    if isinstance(kind, Struct) and spec.nullable:
        return _nullable_struct_reader(struct_reader(kind))
    return _item_reader(spec, owner)


def _item_reader(spec: Field, owner: Struct) -> Reader:
    kind = spec.kind
    if isinstance(kind, Struct):
        return struct_reader(kind)
    if kind is Primitive.UUID:
        return _read_uuid
    if kind in STRINGS:
        compact = owner.flexible and kind is not Primitive.LEGACY_STRING
        read = _string_reader(
            _read_compact_length if compact else _read_legacy_string_length,
            nullable=spec.nullable and not spec.array,
        )
        return _text_reader(read) if kind is Primitive.TEXT else read
    if kind is Primitive.BYTES:
        return _read_compact_bytes
    if kind is Primitive.RECORDS:
        return _read_records
    layout = struct.Struct(">" + kind.value)

    def read_fixed(frame: Frame, place: int) -> tuple[Any, int]:
        return layout.unpack_from(frame, place)[0], place + layout.size

    return read_fixed


@lru_cache(maxsize=1024)
def _uuid_of(raw: bytes) -> uuid.UUID:
    """Return one object for one id: what is the same object is compared at once."""
    return uuid.UUID(bytes=raw)


def _read_uuid(frame: Frame, place: int) -> tuple[uuid.UUID, int]:
    end = place + 16
    if end > len(frame):
        raise ProtocolError("it ends inside a uuid")
    return _uuid_of(bytes(frame[place:end])), end


def _read_compact_length(frame: Frame, place: int) -> tuple[int, int]:
    length, place = read_unsigned_varint(frame, place)
    return length - 1, place


def _read_legacy_string_length(frame: Frame, place: int) -> tuple[int, int]:
    return _INT16.unpack_from(frame, place)[0], place + 2


def _read_legacy_array_length(frame: Frame, place: int) -> tuple[int, int]:
    return _INT32.unpack_from(frame, place)[0], place + 4


def _string_reader(read_length: LengthReader, *, nullable: bool) -> Reader:
    def read_string(frame: Frame, place: int) -> tuple[str | None, int]:
        length, place = read_length(frame, place)
        if length < 0:
            if nullable and length == -1:
                return None, place
            raise ProtocolError(f"a string of length {length}")
        end = place + length
        if end > len(frame):
            raise ProtocolError(f"a string of {length} bytes, {len(frame) - place} are left")
        return str(frame[place:end], "utf-8"), end

    return read_string


def _text_reader(read: Reader) -> Reader:
    def read_text(frame: Frame, place: int) -> tuple[str | None, int]:
        text, end = read(frame, place)
        return None if text is None else printable(text), end

    return read_text


def _read_compact_bytes(frame: Frame, place: int) -> tuple[bytes, int]:
    length, place = _read_compact_length(frame, place)
    if length < 0 or place + length > len(frame):
        raise ProtocolError(f"{length} bytes, {len(frame) - place} are left")
    return bytes(frame[place : place + length]), place + length


def _read_records(frame: Frame, place: int) -> tuple[Frame | None, int]:
    length, place = _read_compact_length(frame, place)
    if length < 0:
        return None, place
    if place + length > len(frame):
        raise ProtocolError(f"records of {length} bytes, {len(frame) - place} are left")
    return frame[place : place + length], place + length


def _check_count(spec: Field, count: int, least_bytes: int, left: int) -> bool:
    """Return whether there is an array at all.

    Raises:
        ProtocolError: It is null and must not be, or cannot fit what is left of the frame.
    """
    if count == -1 and spec.nullable:
        return False
    if count < 0 or count * least_bytes > left:
        raise ProtocolError(f"{spec.name} of {count} elements, {left} bytes are left")
    return True


def _array_reader(
    read_item: Reader, least_bytes: int, read_length: LengthReader, spec: Field
) -> Reader:
    def read_array(frame: Frame, place: int) -> tuple[tuple[Any, ...] | None, int]:
        count, place = read_length(frame, place)
        if not _check_count(spec, count, least_bytes, len(frame) - place):
            return None, place
        items = []
        for _ in range(count):
            item, place = read_item(frame, place)
            items.append(item)
        return tuple(items), place

    return read_array


def _fixed_array_reader(kind: Primitive, read_length: LengthReader, spec: Field) -> Reader:
    size = struct.calcsize(">" + kind.value)

    def read_fixed_array(frame: Frame, place: int) -> tuple[tuple[Any, ...] | None, int]:
        count, place = read_length(frame, place)
        if not _check_count(spec, count, size, len(frame) - place):
            return None, place
        return struct.unpack_from(f">{count}{kind.value}", frame, place), place + count * size

    return read_fixed_array


def _nullable_struct_reader(read: Reader) -> Reader:
    def read_nullable(frame: Frame, place: int) -> tuple[Values | None, int]:
        if frame[place] >= 0x80:
            return None, place + 1
        return read(frame, place + 1)

    return read_nullable


def _tagged_reader(schema: Struct) -> FieldReader:
    tagged = [each for each in schema.fields if each.tag is not None]
    defaults = {each.name: each.default for each in tagged}
    known = {each.tag: (each.name, _value_reader(each, schema)) for each in tagged}

    def read_tagged(frame: Frame, place: int, values: Values) -> int:
        if defaults:
            values.update(defaults)
        if frame[place] == 0:
            return place + 1
        count, place = read_unsigned_varint(frame, place)
        for _ in range(count):
            tag, place = read_unsigned_varint(frame, place)
            size, place = read_unsigned_varint(frame, place)
            end = place + size
            if end > len(frame):
                raise ProtocolError(f"a tagged field of {size} bytes, {len(frame) - place} left")
            if tag in known:
                name, read = known[tag]
                values[name], stop = read(frame, place)
                if stop != end:
                    raise ProtocolError(f"{name} is {stop - place} bytes long, not {size}")
            place = end
        return place

    return read_tagged


def _least_bytes(kind: Primitive | Struct) -> int:
    """Return how few bytes one element can have, at least one: what bounds an array's count."""
    if isinstance(kind, Struct):
        return max(1, sum(_least_field_bytes(e) for e in kind.fields if e.tag is None))
    if kind in _OF_ANY_LENGTH:
        return 1
    return struct.calcsize(">" + kind.value)


def _least_field_bytes(spec: Field) -> int:
    if spec.array or spec.nullable:
        return 1
    return _least_bytes(spec.kind)
