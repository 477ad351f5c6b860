"""A second decoder of fetch responses: plain Python, one field after the other, no shared code.

It refuses what the compiled one must refuse. Aborted transactions are left out the way Kafka's
consumer does it: a set of producers, which grows by the list and shrinks by the markers.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_groups.records.arrow_batches import AbortedTransaction
from workshop.parts.encoding import GZIP, LZ4, SNAPPY, XERIAL_MAGIC, ZSTD, crc32c

Row = tuple[Any, ...]
MAX_US = 2**63 - 1


class WrongError(Exception):
    """These are not bytes that Kafka sends."""


@dataclass
class Octets:
    """Bytes that are read from the front.

    Args:
        rest: The bytes that are left.
    """

    rest: bytes

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.rest):
            raise WrongError("there is not so much")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def varint(self) -> int:
        number = 0
        for index in range(10):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                number &= 2**64 - 1
                return -(number >> 1) - 1 if number & 1 else number >> 1
        raise WrongError("a number does not end")

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


@dataclass
class PlainDecoder:
    """Rows of one partition, and how far it is read.

    Args:
        next_offset: The first offset that is wanted.
        until_offset: The first that is not.
        aborted: As a response lists it.
        check_crcs: Whether checksums count.
        null_timestamps: Whether a timestamp that does not fit is null; else it is wrong.
        rows: The rows: key, value, offset, timestamp in microseconds, its type, headers.
    """

    next_offset: int
    until_offset: int
    aborted: Collection[AbortedTransaction] = ()
    check_crcs: bool = True
    null_timestamps: bool = False
    rows: list[Row] = field(default_factory=list)

    def decode(self, response: bytes) -> None:
        left = sorted(self.aborted, key=lambda each: each.first_offset)
        producers: set[int] = set()
        while self.next_offset < self.until_offset and len(response) > 16:
            base_offset, size, _, magic = struct.unpack_from(">qiib", response)
            if magic != 2 or size < 49:
                raise WrongError("format or length")
            if size > len(response) - 12:
                return
            if base_offset >= self.until_offset:
                self.next_offset = self.until_offset
                return
            batch, response = response[: 12 + size], response[12 + size :]
            last_offset, attributes, producer_id, count = self._header(batch, base_offset)
            while left and left[0].first_offset <= last_offset:
                producers.add(left.pop(0).producer_id)
            if attributes & 0x20:
                if count and self.aborted and self._is_abort(batch):
                    producers.discard(producer_id)
            elif not (attributes & 0x10 and producer_id in producers):
                self._records(batch, base_offset, last_offset, count)
            self._move(last_offset + 1)

    def _move(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, min(offset, self.until_offset))

    def _header(self, batch: bytes, base_offset: int) -> tuple[int, int, int, int]:
        (crc,) = struct.unpack_from(">I", batch, 17)
        if self.check_crcs and crc != crc32c(batch[21:]):
            raise WrongError("checksum")
        attributes, last_delta = struct.unpack_from(">hi", batch, 21)
        producer_id, _, _, count = struct.unpack_from(">qhii", batch, 43)
        last_offset = base_offset + last_delta
        if base_offset < 0 or last_delta < 0 or last_offset > 2**63 - 2 or count < 0:
            raise WrongError("offsets or count")
        return last_offset, attributes, producer_id, count

    def _is_abort(self, batch: bytes) -> bool:
        octets = Octets(batch[61:])
        for _ in range(4):
            # A length, attributes, and the distances of a timestamp and an offset.
            octets.varint()
        key = octets.sized()
        if key is None or len(key) < 4:
            raise WrongError("marker")
        return bool(struct.unpack_from(">h", key, 2)[0] == 0)

    def _records(self, batch: bytes, base_offset: int, last_offset: int, count: int) -> None:
        if not count or last_offset < self.next_offset:
            return
        (attributes,) = struct.unpack_from(">h", batch, 21)
        base_ms, max_ms = struct.unpack_from(">qq", batch, 27)
        octets = Octets(decompress(attributes & 7, batch[61:]))
        previous = base_offset - 1
        for _ in range(count):
            record = Octets(octets.take(octets.varint()))
            record.take(1)
            delta_ms, delta = record.varint(), record.varint()
            offset = base_offset + delta
            if not previous < offset <= last_offset:
                raise WrongError("offset")
            previous = offset
            if offset >= self.until_offset:
                self.next_offset = self.until_offset
                return
            if offset >= self.next_offset:
                time_us = 1000 * (max_ms if attributes & 8 else base_ms + delta_ms)
                row = read_row(record, offset, time_us, attributes >> 3 & 1)
                if abs(time_us) > MAX_US:
                    if not self.null_timestamps:
                        raise WrongError("timestamp")
                    row = (*row[:3], None, *row[4:])
                self.rows.append(row)
                self.next_offset = offset + 1
        if octets.rest:
            raise WrongError("there is more than was counted")


def read_row(record: Octets, offset: int, time_us: int, kind: int) -> Row:
    """Read what follows a record's offset."""
    key, value = record.sized(), record.sized()
    count = record.varint()
    if not 0 <= count <= len(record.rest):
        raise WrongError("number of headers")
    headers = []
    for _ in range(count):
        name = record.sized()
        if name is None:
            raise WrongError("a header without a key")
        headers.append({"key": name.decode("utf-8", "replace"), "value": record.sized()})
    if record.rest:
        raise WrongError("the record's end")
    return key, value, offset, time_us, kind, headers or None


def decompress(codec: int, compressed: bytes) -> bytes:
    """Decompress a batch's records.

    Raises:
        WrongError: They cannot be decompressed.
    """
    try:
        if codec == 0:
            return compressed
        if codec == GZIP:
            return gzip.decompress(compressed)
        if codec == SNAPPY:
            return b"".join(map(unsnap, blocks(compressed)))
        name = {LZ4: "lz4", ZSTD: "zstd"}[codec]
        with pa.CompressedInputStream(pa.BufferReader(compressed), name) as stream:
            return bytes(stream.read())
    except (KeyError, EOFError, OSError, zlib.error, pa.ArrowException, struct.error) as error:
        raise WrongError(str(error)) from error


def blocks(compressed: bytes) -> list[bytes]:
    """Return blocks of snappy, with or without the framing of Java's."""
    if not compressed.startswith(XERIAL_MAGIC):
        return [compressed]
    octets, found = Octets(compressed[16:]), []
    while octets.rest:
        found.append(octets.take(struct.unpack(">i", octets.take(4))[0]))
    return found


def unsnap(block: bytes) -> bytes:
    """Decompress a block of snappy, copy by copy.

    Source: the format description of google/snappy.
    """
    octets, size, out = Octets(block), 0, bytearray()
    for index in range(5):
        (byte,) = octets.take(1)
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    while octets.rest:
        (tag,) = octets.take(1)
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                length = int.from_bytes(octets.take(length - 59), "little")
            out += octets.take(length + 1)
            continue
        if tag & 3 == 1:
            length, back = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | octets.take(1)[0]
        else:
            length = (tag >> 2) + 1
            back = int.from_bytes(octets.take(2 if tag & 3 == 2 else 4), "little")
        if not 0 < back <= len(out):
            raise WrongError("copy")
        for _ in range(length):
            out.append(out[-back])
    if len(out) != size:
        raise WrongError("size")
    return bytes(out)
