"""The first record at or after an offset, in the record batches of a Fetch response.

Only offsets and timestamps are read, in plain Python: the compiled decoder of `records/` takes
seconds to import, and a command reads one record of each partition.

Source: the Kafka protocol guide, Record Batch and Record; Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.errors import ProtocolError
from spark_groups.wire.schemas.codec import Frame

NO_TIMESTAMP_MS: Final = -1
"""The timestamp of a record whose producer set none."""
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much of one batch is decompressed in search of a record."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM: Final = 12
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_IS_LOG_APPEND_TIME: Final = 0x08
_IS_TRANSACTIONAL: Final = 0x10
_IS_CONTROL: Final = 0x20
_UNCOMPRESSED, _SNAPPY = 0, 2
_STREAMED: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_CHUNK_BYTES: Final = 16 * 1024
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_PREAMBLE_BYTES: Final = 5
_VARINT_BYTES: Final = 10
_MARKER_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record at or after an offset.

    Args:
        offset: Its offset; larger than the requested one behind a gap.
        timestamp_ms: Its timestamp, by the producer or the broker; NO_TIMESTAMP_MS: none.
    """

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search in one response.

    Args:
        record: None: these batches have no record to read at or after the offset.
        next_offset: Where to search next: after the last whole batch.
    """

    record: FirstRecord | None
    next_offset: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """The header of a batch, and its records as they travel."""

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    count: int
    records: memoryview

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _IS_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _IS_TRANSACTIONAL)


def find_record(
    records: Frame,
    from_offset: int,
    aborted: tuple[tuple[int, int], ...] = (),
    is_late: Callable[[], bool] = lambda: False,
) -> Search:
    """Return the first record at or after an offset.

    Markers of transactions and records of aborted ones are skipped, as a consumer skips them.

    Args:
        records: Batches of one partition, possibly followed by a partial one.
        aborted: Producer id and first offset of aborted transactions; empty under read_uncommitted.
        is_late: Whether the deadline has passed; then only the first 16 KiB of a batch are read.

    Raises:
        ProtocolError: A batch cannot be read.
        TimeoutError: The deadline has passed.
    """
    pending = sorted(aborted, key=lambda each: each[1])
    producers: set[int] = set()
    next_offset = from_offset
    try:
        for batch in _batches(memoryview(records)):
            while pending and pending[0][1] <= batch.last_offset:
                producers.add(pending.pop(0)[0])
            if batch.last_offset < from_offset:
                continue
            next_offset = batch.last_offset + 1
            if batch.is_control:
                if batch.producer_id in producers and _is_abort(batch):
                    producers.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in producers):
                found = _first_from(batch, from_offset, is_late)
                if found is not None:
                    return Search(found, found.offset + 1)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a record batch is truncated: {error}") from error
    return Search(None, next_offset)


def _batches(left: memoryview) -> Iterator[_Batch]:
    while len(left) > _MAGIC_AT:
        if left[_MAGIC_AT] != _MAGIC:
            raise ProtocolError(f"a record batch has the unknown format {left[_MAGIC_AT]}")
        (length,) = struct.unpack_from(">i", left, 8)
        end = _LENGTH_FROM + length
        if length < _HEADER.size - _LENGTH_FROM:
            raise ProtocolError(f"a record batch of {length} bytes has no room for its header")
        if end > len(left):
            return
        base, _, _, _, _, attributes, last_delta, base_ms, max_ms, producer_id, _, _, count = (
            _HEADER.unpack_from(left)
        )
        yield _Batch(
            base_offset=base,
            last_offset=base + last_delta,
            attributes=attributes,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_ms,
            producer_id=producer_id,
            count=count,
            records=left[_HEADER.size : end],
        )
        left = left[end:]


def _first_from(batch: _Batch, from_offset: int, is_late: Callable[[], bool]) -> FirstRecord | None:
    octets = _Octets(_chunks(batch.attributes & _CODEC_MASK, batch.records), is_late)
    for _ in range(batch.count):
        length = octets.varint()
        end = octets.position + length
        octets.skip(1)
        timestamp_ms = batch.base_timestamp_ms + octets.varint()
        offset = batch.base_offset + octets.varint()
        if length < 0 or octets.position > end or offset > batch.last_offset:
            raise ProtocolError("a record does not fit its batch")
        if offset >= from_offset:
            if batch.attributes & _IS_LOG_APPEND_TIME:
                timestamp_ms = batch.max_timestamp_ms
            return FirstRecord(offset, max(timestamp_ms, NO_TIMESTAMP_MS))
        octets.skip(end - octets.position)
    return None


def _is_abort(batch: _Batch) -> bool:
    """Return whether a control batch ends an aborted transaction."""
    octets = _Octets(iter((bytes(batch.records),)), lambda: False)
    octets.varint()
    octets.skip(1)
    octets.varint()
    octets.varint()
    octets.varint()
    _, kind = _MARKER_KEY.unpack(bytes(octets.byte() for _ in range(_MARKER_KEY.size)))
    return bool(kind == _ABORT)


class _Octets:
    """Reads forward through chunks of bytes; `position` counts the bytes taken."""

    def __init__(self, chunks: Iterator[bytes], is_late: Callable[[], bool]) -> None:
        self._chunks = chunks
        self._is_late = is_late
        self._chunk = b""
        self._at = 0
        self._before = 0

    @property
    def position(self) -> int:
        return self._before + self._at

    def byte(self) -> int:
        while self._at >= len(self._chunk):
            self._next()
        self._at += 1
        return self._chunk[self._at - 1]

    def skip(self, count: int) -> None:
        self._at += count
        while self._at > len(self._chunk):
            self._next()

    def varint(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
        raise ProtocolError("a number in a record does not end")

    def _next(self) -> None:
        self._before += len(self._chunk)
        self._at -= len(self._chunk)
        if self._before > DECOMPRESSED_BYTES_MAX:
            raise ProtocolError(f"a batch exceeds {DECOMPRESSED_BYTES_MAX} bytes")
        if self._before and self._is_late():
            raise TimeoutError("its records could not be searched in time")
        chunk = next(self._chunks, None)
        if chunk is None:
            raise ProtocolError("a batch has fewer records than its header counts")
        self._chunk = chunk


def _chunks(codec: int, records: memoryview) -> Iterator[bytes]:
    """Yield the decompressed bytes of a batch, as far as they are wanted."""
    if codec == _UNCOMPRESSED:
        yield from _pieces(records)
        return
    import pyarrow as pa

    try:
        if codec in _STREAMED:
            source = pa.BufferReader(pa.py_buffer(records))
            with pa.CompressedInputStream(source, _STREAMED[codec]) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
        elif codec == _SNAPPY:
            for block in _snappy_blocks(records):
                yield from _pieces(_snappy(pa, block))
        else:
            raise ProtocolError(f"a batch has the unknown compression {codec}")
    except (pa.ArrowException, OSError) as error:
        raise ProtocolError(f"a batch cannot be decompressed: {error}") from error


def _pieces(octets: Frame) -> Iterator[bytes]:
    for at in range(0, len(octets), _CHUNK_BYTES):
        yield bytes(octets[at : at + _CHUNK_BYTES])


def _snappy_blocks(records: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of xerial's framing; without it there is one block.

    Source: SnappyOutputStream of xerial/snappy-java.
    """
    if bytes(records[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield records
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(records):
        (length,) = struct.unpack_from(">i", records, at)
        if not 0 < length <= len(records) - at - 4:
            raise ProtocolError("a snappy block is truncated")
        yield records[at + 4 : at + 4 + length]
        at += 4 + length


def _snappy(pa: Any, block: memoryview) -> bytes:
    """Decompress a block, which begins with its decompressed length."""
    size = 0
    for index in range(_PREAMBLE_BYTES):
        size |= (block[index] & 0x7F) << 7 * index
        if block[index] < 0x80:
            break
    if size > DECOMPRESSED_BYTES_MAX:
        raise ProtocolError(f"a batch exceeds {DECOMPRESSED_BYTES_MAX} bytes")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size))
