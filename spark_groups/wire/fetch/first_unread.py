"""Records in the record batches of a Fetch response: the first one, or one that a reader missed.

Only offsets and timestamps are read, in plain Python: the compiled decoder of `records/` takes
seconds to import, and a command reads one record of each partition.

Source: the Kafka protocol guide, Record Batch and Record; Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.compressed import (
    FramingError,
    first_lz4_frame,
    gzip_chunks,
    snappy_blocks,
    snappy_size,
    whole_zstd_frames,
)
from spark_groups.errors import ProtocolError
from spark_groups.group.member.messages import RecordSample
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
_UNCOMPRESSED, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_CHUNK_BYTES: Final = 16 * 1024
_VARINT_BYTES: Final = 10
_MARKER_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0
_NO_PRODUCER: Final = -1


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

    def __len__(self) -> int:
        """The number of its offsets."""
        return self.last_offset - self.base_offset + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _IS_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _IS_TRANSACTIONAL)


@dataclass(frozen=True, slots=True)
class Passed:
    """The offsets of a partition that a reader has passed.

    Args:
        offsets: All of them.
        missing: Those for which it returned no record, in order.
    """

    offsets: range
    missing: Sequence[range]

    def missing_of(self, begin: int, until: int) -> list[range]:
        """Return the missing offsets between two."""
        found = []
        index = bisect_right(self.missing, begin, key=lambda each: each.stop)
        while index < len(self.missing) and self.missing[index].start < until:
            each = self.missing[index]
            found.append(range(max(begin, each.start), min(until, each.stop)))
            index += 1
        return found

    def returned_all_of(self, batch: _Batch, missing: Iterable[range]) -> bool:
        """Return whether the reader has passed a batch and returned as many records as it has."""
        returned = len(batch) - sum(map(len, missing))
        is_passed = batch.base_offset in self.offsets and batch.last_offset in self.offsets
        return is_passed and returned >= batch.count


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
    next_offset = from_offset
    for batch, is_visible in _with_visibility(records, from_offset, aborted):
        next_offset = batch.last_offset + 1
        if is_visible:
            for found in _records(batch, is_late):
                if found.offset >= from_offset:
                    return Search(found, found.offset + 1)
    return Search(None, next_offset)


def find_missed(
    records: Frame,
    from_offset: int,
    passed: Passed,
    aborted: tuple[tuple[int, int], ...] = (),
    is_late: Callable[[], bool] = lambda: False,
) -> Search:
    """Return the first record at or after an offset that a reader has missed.

    A batch whose offsets the reader has all passed is only counted. Batches older than message
    format v2 are not checked.

    Args:
        records: Batches of one partition, possibly followed by a partial one.
        passed: What the reader has passed.
        aborted: As for `find_record`.
        is_late: As for `find_record`.

    Raises:
        ProtocolError: A batch cannot be read.
        TimeoutError: The deadline has passed.
    """
    next_offset = from_offset
    for batch, is_visible in _with_visibility(records, from_offset, aborted, skip_old=True):
        next_offset = batch.last_offset + 1
        if not (is_visible and batch.count):
            continue
        missing = passed.missing_of(batch.base_offset, next_offset)
        if not missing or passed.returned_all_of(batch, missing):
            continue
        for found in _records(batch, is_late):
            if passed.missing_of(found.offset, found.offset + 1):
                return Search(found, next_offset)
    left = passed.missing_of(next_offset, passed.offsets.stop)
    return Search(None, left[0].start if left else max(next_offset, passed.offsets.stop))


def sample_size(
    records: Frame,
    from_offset: int,
    aborted: tuple[tuple[int, int], ...] = (),
    is_late: Callable[[], bool] = lambda: False,
) -> RecordSample | None:
    """Return the size of the records from an offset on; None: there is no whole batch.

    Batches older than message format v2 count as they are stored.

    Args:
        records: Batches of one partition, possibly followed by a partial one.
        aborted: As for `find_record`.
        is_late: As for `find_record`.

    Raises:
        ProtocolError: A batch cannot be read.
        TimeoutError: The deadline has passed.
    """
    size_bytes, begin, next_offset = 0, from_offset, from_offset
    for batch, is_visible in _with_visibility(records, from_offset, aborted, skip_old=True):
        next_offset = batch.last_offset + 1
        if is_visible:
            # The offset may lie within a batch.
            wanted = min(len(batch), next_offset - from_offset)
            size_bytes += _size_bytes(batch, is_late) * wanted // len(batch)
        if not size_bytes:
            begin = next_offset
    if next_offset == from_offset:
        return None
    return RecordSample(size_bytes, next_offset - begin, begin - from_offset)


def _size_bytes(batch: _Batch, is_late: Callable[[], bool]) -> int:
    """Return the size of a batch without compression, or how far it was counted."""
    codec = batch.attributes & _CODEC_MASK
    if codec == _UNCOMPRESSED:
        return len(batch.records)
    size_bytes = 0
    for chunk in _chunks(codec, batch.records):
        size_bytes += len(chunk)
        if size_bytes > DECOMPRESSED_BYTES_MAX:
            break
        if is_late():
            raise TimeoutError("its records could not be measured in time")
    return size_bytes


def _with_visibility(
    records: Frame,
    from_offset: int,
    aborted: tuple[tuple[int, int], ...],
    *,
    skip_old: bool = False,
) -> Iterator[tuple[_Batch, bool]]:
    """Yield the batches from an offset on, and whether a consumer sees their records."""
    pending = sorted(aborted, key=lambda each: each[1])
    producers: set[int] = set()
    try:
        for batch in _batches(memoryview(records), skip_old=skip_old):
            while pending and pending[0][1] <= batch.last_offset:
                producers.add(pending.pop(0)[0])
            if batch.last_offset < from_offset:
                continue
            is_aborted = batch.is_transactional and batch.producer_id in producers
            yield batch, not (batch.is_control or is_aborted)
            # Compaction may have removed the marker from its batch.
            if batch.is_control and batch.count and _is_abort(batch):
                producers.discard(batch.producer_id)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a record batch is truncated: {error}") from error


def _batches(left: memoryview, *, skip_old: bool) -> Iterator[_Batch]:
    while len(left) > _MAGIC_AT:
        if skip_old and left[_MAGIC_AT] < _MAGIC:
            last_offset, length = struct.unpack_from(">qi", left)
            end = _LENGTH_FROM + max(length, _MAGIC_AT)
            stored = left[_LENGTH_FROM:end]
            yield _Batch(last_offset, last_offset, 0, 0, 0, _NO_PRODUCER, 0, stored)
            left = left[end:]
            continue
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
        if base < 0 or last_delta < 0:
            raise ProtocolError(f"a record batch has the offsets {base} to {base + last_delta}")
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


def _records(batch: _Batch, is_late: Callable[[], bool]) -> Iterator[FirstRecord]:
    """Yield the records of a batch in order."""
    octets = _Octets(_chunks(batch.attributes & _CODEC_MASK, batch.records), is_late)
    for _ in range(batch.count):
        length = octets.varint()
        end = octets.position + length
        octets.skip(1)
        timestamp_ms = batch.base_timestamp_ms + octets.varint()
        offset = batch.base_offset + octets.varint()
        if length < 0 or octets.position > end or offset > batch.last_offset:
            raise ProtocolError("a record does not fit its batch")
        if batch.attributes & _IS_LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp_ms
        yield FirstRecord(offset, max(timestamp_ms, NO_TIMESTAMP_MS))
        octets.skip(end - octets.position)


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
        if codec == _GZIP:
            yield from gzip_chunks(records, _CHUNK_BYTES)
        elif codec == _SNAPPY:
            for block in snappy_blocks(records):
                yield from _pieces(_snappy(pa, block))
        elif codec == _LZ4:
            yield from _streamed(pa, "lz4", first_lz4_frame(records))
        elif codec == _ZSTD:
            yield from _streamed(pa, "zstd", whole_zstd_frames(records))
        else:
            raise ProtocolError(f"a batch has the unknown compression {codec}")
    except (pa.ArrowException, OSError, FramingError, IndexError) as error:
        raise ProtocolError(f"a batch cannot be decompressed: {error}") from error


def _streamed(pa: Any, codec: str, records: memoryview) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(records)), codec) as stream:
        # Pyarrow's `read` leaks its memory when it raises an error.
        chunk = bytearray(_CHUNK_BYTES)
        while count := stream.readinto(chunk):
            yield bytes(chunk[:count])


def _pieces(octets: Frame) -> Iterator[bytes]:
    for at in range(0, len(octets), _CHUNK_BYTES):
        yield bytes(octets[at : at + _CHUNK_BYTES])


def _snappy(pa: Any, block: memoryview) -> bytes:
    size = snappy_size(block)
    if size > DECOMPRESSED_BYTES_MAX:
        raise ProtocolError(f"a batch exceeds {DECOMPRESSED_BYTES_MAX} bytes")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size))
