"""Hostile Avro: records under random pairs of schemas, and schemas.

A record that is not refused must have the value that fastavro reads, and its neighbours theirs.
"""

from __future__ import annotations

import contextlib
import random
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.arrow_types import arrow_type_of
from spark_groups.formats.avro.resolution import resolve
from spark_groups.formats.avro.schema import parse_schema, with_references
from spark_groups.spark.reading.compiled import AVRO, prepare
from workshop.parts.avro import Schema, Schemas, Unread, octets_of, read_by_fastavro, text_of
from workshop.parts.guard import guarded

if TYPE_CHECKING:
    from spark_groups.formats.avro.decoder import AvroDecoder

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
def _decoder_class() -> type[AvroDecoder]:
    """Return the decoder, every buffer of which ends at a page without access."""
    prepare(AVRO)
    from spark_groups.formats.avro import decoder, slots  # noqa: PLC0415

    parts: Any = slots
    parts.new_octets = lambda size: guarded(np.empty(size, np.uint8))
    return decoder.AvroDecoder


@cache
def _decoder(number: int) -> AvroDecoder:
    writer, reader = _pairs()[number]
    made = _decoder_class()
    return made(text_of(reader), lambda _: text_of(writer), bytes_max=BYTES_MAX)


def feed_record(octets: bytes) -> None:
    """Decode a record, beside its like."""
    number = octets[0] % _PAIRS if octets else 0
    own = records()[number * _RECORDS][1:]
    frames = [b"\0" * 5 + each for each in (own, octets[1:], own)]
    column = pa.array(frames, pa.binary())
    data: Any = guarded(np.frombuffer(b"".join(frames), np.uint8))
    behind = pa.Array.from_buffers(
        pa.binary(), len(frames), [None, column.buffers()[1], pa.py_buffer(data)]
    )
    found = _decoder(number).decode(behind)
    found.values.validate(full=True)
    for row, each in enumerate((own, octets[1:], own)):
        if row not in found.refused:
            _compare(number, each, found.values[row])
        elif row != 1 and _is_read(number, own):
            raise AssertionError(f"a neighbour is refused: {found.refused[row]}")


def _is_read(number: int, octets: bytes) -> bool:
    try:
        read_by_fastavro(*_pairs()[number], octets)
    except Unread:
        return False
    return True


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
    refers = with_references('["null", "space.T1"]', {"space.T1": texts[0]})
    return [each.encode() for each in (*texts, *pieces, refers)]


def feed_schema(octets: bytes) -> None:
    """Parse a schema, and resolve it to itself and to others."""
    with contextlib.suppress(SchemaError):
        own = octets.decode("utf-8", "surrogateescape")
        parsed = parse_schema(own, with_defaults=True)
        arrow_type_of(parsed)
        resolve(parsed, parsed)
        for other, _ in _pairs()[:3]:
            with contextlib.suppress(SchemaError):
                resolve(parsed, parse_schema(text_of(other), with_defaults=True))
            with contextlib.suppress(SchemaError):
                resolve(parse_schema(text_of(other)), parsed)
        _decoder_class()(own, None, bytes_max=BYTES_MAX)
