"""Hostile Avro: records under random pairs of schemas, and schemas.

Compiled code and plain Python must make the same of each record, and the same as fastavro of one
that is not refused.
"""

from __future__ import annotations

import contextlib
import random
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.arrow_types import arrow_type_of
from spark_groups.formats.avro.decoder import AvroDecoder
from spark_groups.formats.avro.resolution import check_defaults, resolve
from spark_groups.formats.avro.schema import parse_schema
from spark_groups.spark.reading.compiled import AVRO, prepare
from workshop.fuzz.rows import canonical
from workshop.parts.avro import Schema, Schemas, Unread, octets_of, read_by_fastavro, text_of
from workshop.parts.guard import guarded

BYTES_MAX: Final = 1 << 26
_PAIRS: Final = 40
_RECORDS: Final = 8


@cache
def _pairs() -> list[tuple[Schema, Schema]]:
    made = []
    for seed in range(_PAIRS):
        schemas = Schemas(random.Random(seed))
        writer = schemas.record()
        made.append((writer, writer if seed % 2 else schemas.evolved(writer)))
    return made


@cache
def records() -> list[bytes]:
    """Return records, each behind the number of its pair of schemas."""
    made = []
    for number, (writer, _) in enumerate(_pairs()):
        chance = random.Random(number)
        made += [bytes([number]) + octets_of(chance, writer) for _ in range(_RECORDS)]
    return made


@cache
def _decoder(number: int, *, compiled: bool) -> AvroDecoder:
    if compiled:
        prepare(AVRO)
        _guard_slots()
    writer, reader = _pairs()[number]
    return AvroDecoder(
        text_of(reader), lambda _: text_of(writer), bytes_max=BYTES_MAX, compiled=compiled
    )


@cache
def _guard_slots() -> None:
    """Have every buffer that compiled code fills end at a page without access."""
    from spark_groups.formats.avro import slots  # noqa: PLC0415

    parts: Any = slots
    parts.new_array = lambda size, kind: guarded(np.empty(size, kind))


def feed_record(octets: bytes) -> None:
    """Decode a record, beside its like, in each way."""
    number = octets[0] % _PAIRS if octets else 0
    good = b"\0" * 5 + records()[number * _RECORDS][1:]
    frames = [good, b"\0" * 5 + octets[1:], good]
    column = pa.array(frames, pa.binary())
    data: Any = guarded(np.frombuffer(b"".join(frames), np.uint8))
    behind = pa.Array.from_buffers(
        pa.binary(), len(frames), [None, column.buffers()[1], pa.py_buffer(data)]
    )
    found = _decoder(number, compiled=True).decode(behind)
    found.values.validate(full=True)
    plain = _decoder(number, compiled=False).decode(column)
    if [*map(canonical, found.values)] != [*map(canonical, plain.values)]:
        raise AssertionError(f"{found.values} is not {plain.values}")
    if found.refused != plain.refused:
        raise AssertionError(f"{found.refused} is not {plain.refused}")
    if 1 not in found.refused:
        _compare(number, octets[1:], found.values[1])


def _compare(number: int, octets: bytes, value: pa.Scalar) -> None:
    """Compare a value with fastavro's; that has no limits, so it only gets records that fit."""
    try:
        expected = read_by_fastavro(*_pairs()[number], octets)
        found = value.as_py()
    except (Unread, OverflowError, ValueError):
        # A time that is out of reach for Python's, or no UUID.
        return
    if repr(_without_doubles(found)) != repr(expected):
        raise AssertionError(f"{found} is not {expected}")


def _without_doubles(value: Any) -> Any:
    """Return a value with only the last of equal keys of a map, as in Python's dictionaries."""
    if isinstance(value, dict):
        return {name: _without_doubles(each) for name, each in value.items()}
    if isinstance(value, list):
        below = [_without_doubles(each) for each in value]
        if below and all(isinstance(each, tuple) for each in below):
            return list(dict(below).items())
        return below
    if isinstance(value, tuple):
        return value[0], _without_doubles(value[1])
    return value


def schemas() -> list[bytes]:
    """Return schemas."""
    texts = [text_of(each) for pair in _pairs() for each in pair]
    deep = '{"type":"array","items":' * 500
    pieces = ('{"type": "int", "logicalType": "date"}', '["null", "T"]', '"space.T1"', deep)
    return [each.encode() for each in (*texts, *pieces)]


def feed_schema(octets: bytes) -> None:
    """Parse a schema, and resolve it to itself and to others."""
    with contextlib.suppress(SchemaError):
        parsed = parse_schema(octets.decode("utf-8", "surrogateescape"))
        arrow_type_of(parsed)
        check_defaults(parsed)
        resolve(parsed, parsed)
        for other, _ in _pairs()[:3]:
            with contextlib.suppress(SchemaError):
                resolve(parsed, parse_schema(text_of(other)))
            with contextlib.suppress(SchemaError):
                resolve(parse_schema(text_of(other)), parsed)
        own = octets.decode("utf-8", "surrogateescape")
        AvroDecoder(own, None, bytes_max=BYTES_MAX, compiled=True)
