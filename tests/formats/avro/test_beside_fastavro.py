"""What fastavro reads of random records with random schemas is what the decoder reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.formats.avro.decoder import AvroDecoder
from workshop.parts.avro import (
    Schema,
    Schemas,
    Unread,
    octets_of,
    read_by_fastavro,
    text_of,
)

BYTES_MAX = 64 * 1024 * 1024


def decoded(
    reader: Schema, writers: Sequence[Schema], rows: Sequence[tuple[int, bytes]]
) -> tuple[list[Any], list[str]]:
    """Return the values, and for each row why it is refused."""
    frames = [b"\0" + schema_id.to_bytes(4, "big") + octets for schema_id, octets in rows]
    decoder = AvroDecoder(
        text_of(reader),
        lambda schema_id: text_of(writers[schema_id]),
        bytes_max=BYTES_MAX,
    )
    column = decoder.decode(pa.array(frames, pa.binary()))
    column.values.validate(full=True)
    assert len(column.values) == len(rows)
    reasons = [
        column.refused[row].reason if row in column.refused else "" for row in range(len(rows))
    ]
    return column.values.to_pylist(), reasons


def expected_of(writer: Schema, reader: Schema, octets: bytes) -> Any:
    """Return the value that fastavro reads; `Unread`: none."""
    try:
        return read_by_fastavro(writer, reader, octets)
    except Unread:
        return Unread


def compare(seed: int, count: int) -> None:
    """Compare the values of records under a random pair of schemas."""
    chance = random.Random(seed)
    drawn = Schemas(chance)
    writer = drawn.record()
    reader = writer if seed % 3 == 0 else drawn.evolved(writer)
    rows = [(0, octets_of(chance, writer)) for _ in range(count)]
    values, reasons = decoded(reader, [writer], rows)
    schemas = f"{text_of(writer)}\n{text_of(reader)}"
    for (_, octets), value, reason in zip(rows, values, reasons, strict=True):
        expected = expected_of(writer, reader, octets)
        assert (expected is Unread) == bool(reason), f"{reason}\n{expected}\n{schemas}"
        assert expected is Unread or repr(value) == repr(expected), schemas


@pytest.mark.parametrize("seed", range(150))
def test_generated_records_have_the_values_that_fastavro_reads(seed: int) -> None:
    compare(seed, 20)


@pytest.mark.long
@pytest.mark.parametrize("part", range(40))
def test_a_million_records_of_two_hundred_schemas_have_them(part: int) -> None:
    for seed in range(1000 + 5 * part, 1005 + 5 * part):
        compare(seed, 5_000)
