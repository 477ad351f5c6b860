"""Kafka's wire protocol: bytes from values, and values from bytes, according to the schemas.

A structure is a dictionary by field name, an array a tuple, a string a `str`, a topic id a
`uuid.UUID`. Each schema is compiled once into closures; runs of fixed-width fields use one
`struct.Struct`, for speed.

The peer may be broken or hostile: every length is checked against the remaining bytes before
anything is allocated, and every failure is a ProtocolError.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from spark_groups.errors import ProtocolError, printable
from spark_groups.wire.schemas.wire_messages import (
    STRINGS,
    Field,
    Primitive,
    Struct,
    formats,
    is_fixed,
)


def encode(schema: Struct, values: Mapping[str, Any]) -> bytes:
    """Write a structure from its fields by name, except tagged ones.

    Raises:
        ProtocolError: A field is missing, or its value does not fit the wire.
    """
    out = bytearray()
    try:
        struct_writer(schema)(out, values)
    except (KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        raise ProtocolError(f"{schema.name} cannot be written: {error!r}") from error
    return bytes(out)


def decode(schema: Struct, frame: Frame, start: int = 0) -> Values:
    """Read a structure that fills the frame from `start` on.

    Raises:
        ProtocolError: The bytes do not match the schema, or more bytes follow.
    """
    values, end = decode_start(schema, frame, start)
    if end != len(frame):
        raise ProtocolError(f"{len(frame) - end} bytes follow the end of {schema.name}")
    return values


def decode_start(schema: Struct, frame: Frame, start: int = 0) -> tuple[Values, int]:
    """Read a structure that other bytes may follow, and return the position after it.

    Raises:
        ProtocolError: The bytes do not match the schema.
    """
    try:
        return struct_reader(schema)(frame, start)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{schema.name} cannot be read: {error}") from error
    except ProtocolError as error:
        raise ProtocolError(f"{schema.name} cannot be read: {error}") from None


# Reading

Values = dict[str, Any]
"""The fields of a structure by name."""

Frame = bytes | memoryview
"""Bytes to read; of a memoryview only the records are kept."""
Reader = Callable[[Frame, int], tuple[Any, int]]
"""Reads one value at a position; returns it and the position after it."""
FieldReader = Callable[[Frame, int, Values], int]
"""Reads fields at a position into the values; returns the position after them."""
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
    """Return the reader of a structure, which reads each run of fixed-width fields at once."""
    steps: list[FieldReader] = []
    untagged = [field_ for field_ in schema.fields if field_.tag is None]
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
    """Return one object for each id: identical objects compare fast."""
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
        ProtocolError: It is null but not nullable, or cannot fit into the rest of the frame.
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
    tagged = [field_ for field_ in schema.fields if field_.tag is not None]
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
    """Return the least size of an element, at least one byte: it limits an array's count."""
    if isinstance(kind, Struct):
        return max(1, sum(_least_field_bytes(e) for e in kind.fields if e.tag is None))
    if kind in _OF_ANY_LENGTH:
        return 1
    return struct.calcsize(">" + kind.value)


def _least_field_bytes(spec: Field) -> int:
    if spec.array or spec.nullable:
        return 1
    return _least_bytes(spec.kind)


# Writing

Writer = Callable[[bytearray, Any], None]

MAX_STRING_BYTES: Final = 32767
"""Every broker refuses a longer string, even if its length fits the encoding."""


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number in groups of seven bits, least significant first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@cache
def struct_writer(schema: Struct) -> Writer:
    """Return the writer of a structure, which writes each run of fixed-width fields at once."""
    written = [field_ for field_ in schema.fields if field_.tag is None]
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
    """Return the writer of a nullable structure, marked by a byte before it (KIP-893)."""

    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable
