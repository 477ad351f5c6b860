"""Bytes that are nearly right are decoded as fastavro does, or refused."""

from __future__ import annotations

import random
import resource

import numpy as np
import pyarrow as pa
import pytest

from spark_groups.errors import UnknownSchemaIdError
from spark_groups.formats.avro.decoder import AvroDecoder
from workshop.fuzz import avro
from workshop.fuzz.mutation import drawn
from workshop.parts.avro import Schema, Schemas, octets_of, text_of

BYTES_MAX = 16 * 1024 * 1024


@pytest.mark.parametrize("seed", range(4))
def test_mutated_records_have_the_same_values_and_the_same_refusals(seed: int) -> None:
    corpus = avro.records()
    for number in range(400):
        avro.feed_record(drawn(seed, "Avro records", number, corpus))


@pytest.mark.parametrize("seed", range(2))
def test_mutated_schemas_are_used_or_refused(seed: int) -> None:
    corpus = avro.schemas()
    for number in range(300):
        avro.feed_schema(drawn(seed, "Avro schemas", number, corpus))


def mutated(chance: np.random.Generator, records: list[bytes], rows: int) -> pa.Array:
    """Return a column of records in which about every second one has a wrong byte or length."""
    octets = np.frombuffer(b"".join(records[row % len(records)] for row in range(rows)), np.uint8)
    octets = octets.copy()
    places = chance.integers(0, max(1, len(octets)), rows // 3)
    octets[places] ^= (1 << chance.integers(0, 8, rows // 3)).astype(np.uint8)
    places = chance.integers(0, max(1, len(octets)), rows // 10)
    octets[places] = chance.integers(0, 256, rows // 10)
    sizes = [len(records[row % len(records)]) for row in range(rows)]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    inner = chance.integers(1, rows, rows // 20)
    ends[inner] = np.clip(ends[inner] + chance.integers(-3, 4, rows // 20), 0, ends[-1])
    ends = np.maximum.accumulate(ends)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    )


def decoder_of(writer: Schema, reader: Schema) -> AvroDecoder:
    """Return a decoder that knows one schema id."""

    def schema_of(schema_id: int) -> str:
        if schema_id != 7:
            raise UnknownSchemaIdError(f"there is no schema {schema_id}")
        return text_of(writer)

    return AvroDecoder(text_of(reader), schema_of, bytes_max=BYTES_MAX)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_ten_million_mutated_records_need_no_more_memory_and_time(part: int) -> None:
    numbers = np.random.default_rng(part)
    for seed in range(20 * part, 20 * part + 20):
        chance = random.Random(seed)
        schemas = Schemas(chance)
        writer = schemas.record()
        reader = schemas.evolved(writer)
        records = [b"\0\0\0\0\7" + octets_of(chance, writer) for _ in range(100)]
        decoder = decoder_of(writer, reader)
        decoder.decode(pa.array(records, pa.binary()))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(5):
            column = mutated(numbers, records, 5_000)
            while len(column):
                decoded = decoder.decode(column)
                decoded.values.validate(full=True)
                column = column[len(decoded.values) :]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - before) * 1024 < BYTES_MAX + 64 * 1024 * 1024
