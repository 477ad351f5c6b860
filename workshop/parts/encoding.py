"""Batches of records as bytes, written plainly after the Kafka protocol guide; no code is shared.

Nothing here checks what it is given: tests also want batches that no broker would take.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CREATE_TIME, LOG_APPEND_TIME = 0, 1
XERIAL_MAGIC = b"\x82SNAPPY\x00"


@dataclass(frozen=True)
class Record:
    """A record; its offset and timestamp are relative to its batch's.

    Args:
        offset_delta: From the batch's base offset.
        timestamp_delta: From its base timestamp, ms.
        key: None is null.
        value: None is null.
        headers: Keys and values.
    """

    offset_delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """A batch; fields that are None are computed.

    Args:
        base_offset: Offset that the records' are relative to.
        records: What it holds.
        last_offset_delta: As the header says; of the last record, if None.
        base_timestamp: Ms.
        max_timestamp: Ms; the timestamp of all records with the type LogAppendTime.
        timestamp_type: CREATE_TIME or LOG_APPEND_TIME.
        codec: How the records are compressed.
        is_transactional: A flag.
        is_control: A flag.
        producer_id: Of an idempotent producer.
        count: As the header says.
        magic: Version of the format.
        is_xerial: Whether snappy is framed as Java's producers do.
    """

    base_offset: int = 0
    records: tuple[Record, ...] = ()
    last_offset_delta: int | None = None
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int = 1_700_000_000_000
    timestamp_type: int = CREATE_TIME
    codec: int = NONE
    is_transactional: bool = False
    is_control: bool = False
    producer_id: int = -1
    count: int | None = None
    magic: int = 2
    is_xerial: bool = False

    @property
    def last_offset(self) -> int:
        delta = self.last_offset_delta
        if delta is None:
            delta = self.records[-1].offset_delta if self.records else 0
        return self.base_offset + delta

    def encode(self, body: bytes | None = None) -> bytes:
        """Return its bytes.

        Args:
            body: What stands in place of its records.
        """
        if body is None:
            body = compress(self.codec, encode_records(self.records), is_xerial=self.is_xerial)
        attributes = (
            self.codec
            | self.timestamp_type << 3
            | self.is_transactional << 4
            | self.is_control << 5
        )
        count = len(self.records) if self.count is None else self.count
        checked = struct.pack(
            ">hiqqqhii",
            attributes,
            self.last_offset - self.base_offset,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            0 if self.producer_id >= 0 else -1,
            0 if self.producer_id >= 0 else -1,
            count,
        )
        return seal(self.base_offset, checked + body, magic=self.magic)


def seal(base_offset: int, checked: bytes, *, magic: int = 2) -> bytes:
    """Put before the checked part of a batch what stands before it, with the right checksum."""
    frame = struct.pack(">ibI", 0, magic, crc32c(checked)) + checked
    return struct.pack(">qi", base_offset, len(frame)) + frame


def crc32c(octets: bytes) -> int:
    """Compute a CRC-32C bit by bit, as its definition says."""
    checksum = 0xFFFFFFFF
    for byte in octets:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
    return byte


_TABLE = [_remainder(byte) for byte in range(256)]


def varint(number: int) -> bytes:
    """Encode a number of 64 bits: zigzag, then seven bits in a byte."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def sized(octets: bytes | None) -> bytes:
    """Encode bytes behind their length."""
    return varint(-1) if octets is None else varint(len(octets)) + octets


def encode_record(record: Record) -> bytes:
    """Encode a record behind its length."""
    headers = b"".join(sized(key) + sized(value) for key, value in record.headers)
    return sized(
        b"\x00"
        + varint(record.timestamp_delta)
        + varint(record.offset_delta)
        + sized(record.key)
        + sized(record.value)
        + varint(len(record.headers))
        + headers
    )


def encode_records(records: Iterable[Record]) -> bytes:
    """Encode records, one behind the other."""
    return b"".join(map(encode_record, records))


def compress(codec: int, body: bytes, *, is_xerial: bool = False) -> bytes:
    """Compress the records of a batch."""
    if codec == NONE:
        return body
    if codec == GZIP:
        # Without the time, which would make each batch another one.
        return gzip.compress(body, mtime=0)
    if codec == SNAPPY:
        return xerial(body) if is_xerial else bytes(pa.compress(body, "snappy", asbytes=True))
    name = {LZ4: "lz4", ZSTD: "zstd"}[codec]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(body)
    return bytes(sink.getvalue().to_pybytes())


def xerial(body: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """Compress as Java's SnappyOutputStream does: a header, and blocks behind their lengths."""
    framed = [XERIAL_MAGIC, struct.pack(">ii", 1, 1)]
    for begin in range(0, len(body), block_bytes):
        block = bytes(pa.compress(body[begin : begin + block_bytes], "snappy", asbytes=True))
        framed += [struct.pack(">i", len(block)), block]
    return b"".join(framed)


def marker(base_offset: int, producer_id: int, *, is_abort: bool) -> Batch:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 0 if is_abort else 1)
    return Batch(
        base_offset,
        (Record(key=key, value=struct.pack(">hi", 0, 0)),),
        is_transactional=True,
        is_control=True,
        producer_id=producer_id,
    )


def plain(base_offset: int, values: Sequence[bytes | None]) -> Batch:
    """Return a batch of records with these values, and nothing else."""
    return Batch(
        base_offset, tuple(Record(index, value=value) for index, value in enumerate(values))
    )


def moved(batch: Batch, base_offset: int) -> Batch:
    """Return a batch at another offset."""
    return replace(batch, base_offset=base_offset)
