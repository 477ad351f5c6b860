"""Both decoders over the same responses, and what each of them says."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from spark_groups.errors import RecordsError
from spark_groups.records.arrow_batches import AbortedTransaction, RecordDecoder
from spark_groups.spark.reading.rows import ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import RangeCursor, TopicPartition
from workshop.parts.encoding import CREATE_TIME, LOG_APPEND_TIME, Batch, Record
from workshop.parts.plain_decoder import PlainDecoder, Row, WrongError

TP = TopicPartition("flights", 3)
END = 2**62


@dataclass(frozen=True)
class Outcome:
    """What a decoder made of responses.

    Args:
        rows: The rows.
        next_offset: How far it got.
        is_wrong: Whether it refused something.
    """

    rows: list[Row]
    next_offset: int
    is_wrong: bool


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Return what record batches hold, but for topic and partition; each of them is validated."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        # A timestamp of Arrow may be out of reach for Python's.
        times = batch["timestamp"].cast(pa.int64()).to_pylist()
        columns = [batch[name].to_pylist() for name in ("key", "value", "offset")]
        kinds, headers = batch["timestampType"].to_pylist(), [None] * len(batch)
        if "headers" in batch.schema.names:
            headers = batch["headers"].to_pylist()
        rows += zip(*columns, times, kinds, headers, strict=True)
    return rows


def compiled_outcome(
    response: bytes,
    next_offset: int = 0,
    until_offset: int = END,
    aborted: Collection[AbortedTransaction] = (),
    *,
    check_crcs: bool = True,
    null_timestamps: bool = False,
    rows_max: int = 10_000,
    bytes_max: int = 1 << 20,
) -> Outcome:
    """Decode a response with the compiled decoder."""
    decoder = RecordDecoder(
        ROW_SCHEMA_WITH_HEADERS,
        rows_max=rows_max,
        bytes_max=bytes_max,
        batch_bytes_max=1 << 22,
        check_crcs=check_crcs,
        null_timestamps=null_timestamps,
    )
    position = RangeCursor(TP, next_offset, until_offset)
    batches: list[pa.RecordBatch] = []
    try:
        # Batches are kept while others are made: memory that is lent must not be written to.
        batches.extend(decoder.decode(response, position, aborted))
        is_wrong = False
    except RecordsError:
        is_wrong = True
    rest = decoder.take()
    batches += [rest] if rest is not None else []
    assert all(0 < len(batch) <= rows_max for batch in batches)
    return Outcome(rows_of(batches), position.next_offset, is_wrong)


def plain_outcome(
    response: bytes,
    next_offset: int = 0,
    until_offset: int = END,
    aborted: Collection[AbortedTransaction] = (),
    *,
    check_crcs: bool = True,
    null_timestamps: bool = False,
) -> Outcome:
    """Decode a response with the plain decoder."""
    decoder = PlainDecoder(next_offset, until_offset, aborted, check_crcs, null_timestamps)
    try:
        decoder.decode(response)
        is_wrong = False
    except WrongError:
        is_wrong = True
    return Outcome(decoder.rows, decoder.next_offset, is_wrong)


def random_octets(chance: random.Random, size_max: int) -> bytes | None:
    """Return bytes, often few of them, or null."""
    size = chance.choice((-1, 0, 1, 7, 16, 17, chance.randint(0, size_max)))
    return None if size < 0 else chance.randbytes(size)


def random_record(chance: random.Random, offset_delta: int) -> Record:
    """Return a record of any shape."""
    names = (b"", b"trace", "größe".encode(), b"\xff\xfe")
    headers = tuple(
        (chance.choice(names), random_octets(chance, 20))
        for _ in range(chance.choice((0, 0, 1, 3)))
    )
    delta_ms = chance.choice((0, 1, -1, -(10**6), 10**12))
    key, value = random_octets(chance, 40), random_octets(chance, 300)
    return Record(offset_delta, delta_ms, key, value, headers)


def random_batches(chance: random.Random, count: int) -> list[Batch]:
    """Return batches with gaps within, between and behind them."""
    batches: list[Batch] = []
    offset = chance.choice((0, 5, 2**40))
    for _ in range(count):
        delta, records = -1, []
        for _ in range(chance.choice((0, 1, 2, 30))):
            delta += chance.choice((1, 1, 1, 2, 70, 10_000))
            records.append(random_record(chance, delta))
        batch = Batch(
            offset,
            tuple(records),
            last_offset_delta=max(0, delta) + chance.choice((0, 0, 1, 500)),
            base_timestamp=chance.choice((0, -1, 1_700_000_000_000)),
            timestamp_type=chance.choice((CREATE_TIME, CREATE_TIME, LOG_APPEND_TIME)),
            codec=chance.choice((0, 0, 0, 1, 2, 3, 4)),
            is_xerial=chance.random() < 0.5,
        )
        batches.append(batch)
        offset = batch.last_offset + chance.choice((1, 1, 9))
    return batches
