"""Where the compressed parts of a batch begin and end, as Kafka's consumer reads them.

Brokers accept a batch if Kafka's own classes find its records, also one of several compressed parts
or with bytes behind the last part. General libraries treat such bytes otherwise: they read one part
too few or too many, or refuse the batch.

Source: java.util.zip.GZIPInputStream (JDK 17); Kafka's Lz4BlockInputStream; SnappyInputStream of
xerial/snappy-java; ZstdInputStreamNoFinalizer of zstd-jni; RFC 1952; RFC 8878; the LZ4 frame
format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_HEADER_BYTES: Final = 10
_GZIP_TRAILER: Final = struct.Struct("<II")
_GZIP_HAS_CHECKSUM, _GZIP_HAS_EXTRA = 0x02, 0x04
_GZIP_TEXTS: Final = (0x08, 0x10)
_GZIP_LEAST_REST: Final = 19
"""Java looks for a further member only in so many bytes, if all are in its buffer."""
_LEAST_FED_BYTES, _FED_BYTES = 4 * 1024, 64 * 1024

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = struct.Struct(">8sii")
_SNAPPY_LENGTH_BYTES: Final = 4
_SNAPPY_SIZE_BYTES: Final = 5
_SNAPPY_RATIO_MAX: Final = 22
"""The shortest element is a copy of 64 bytes in three."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HAS_BLOCK_CHECKSUMS, _LZ4_HAS_SIZE, _LZ4_HAS_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_END: Final = bytes(4)
_LZ4_REFUSED: Final = 0x03
_LZ4_IS_STORED: Final = 1 << 31
_LZ4_FLAGS_AT, _LZ4_SIZE_AT, _LZ4_SIZE_BYTES, _LZ4_CHECKSUM_BYTES = 4, 6, 8, 4

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"
"""The lower four bits of the first byte may have any value."""
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_ZSTD_IS_SINGLE, _ZSTD_HAS_CHECKSUM = 0x20, 0x04
_ZSTD_SKIPPABLE_HEADER_BYTES, _ZSTD_BLOCK_HEADER_BYTES = 8, 3
_ZSTD_REPEATED: Final = 1
_ZSTD_CHECKSUM_BYTES: Final = 4


class FramingError(ValueError):
    """Bytes that Kafka's consumer does not read either."""


def gzip_chunks(compressed: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of all members, at most so many at a time.

    Bytes behind a member that are no header end the stream.

    Raises:
        FramingError: There is no member, or one is damaged or truncated.
    """
    at = _gzip_body(compressed, 0)
    if at is None:
        raise FramingError("it does not begin with a gzip header")
    while at is not None:
        inflater, checksum, size = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        fed_bytes = _LEAST_FED_BYTES
        while not inflater.eof:
            fed: bytes | memoryview = inflater.unconsumed_tail
            if not fed:
                # Few at first: what follows a short member is copied.
                fed = compressed[at : at + fed_bytes]
                at, fed_bytes = at + len(fed), min(2 * fed_bytes, _FED_BYTES)
            try:
                chunk = inflater.decompress(fed, chunk_bytes)
            except zlib.error as error:
                raise FramingError(str(error)) from None
            if not (fed or chunk or inflater.eof):
                raise FramingError("a gzip member is truncated")
            checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
            if chunk:
                yield chunk
        at -= len(inflater.unused_data)
        if len(compressed) - at < _GZIP_TRAILER.size:
            raise FramingError("a gzip member is truncated")
        if _GZIP_TRAILER.unpack_from(compressed, at) != (checksum, size & 0xFFFFFFFF):
            raise FramingError("the checksum or the size of a gzip member is wrong")
        at += _GZIP_TRAILER.size
        at = _gzip_body(compressed, at) if len(compressed) - at >= _GZIP_LEAST_REST else None


def _gzip_body(compressed: memoryview, begin: int) -> int | None:
    """Return where the body of a member begins; None if Java finds no header."""
    if (
        len(compressed) - begin < _GZIP_HEADER_BYTES
        or bytes(compressed[begin : begin + 3]) != _GZIP_MAGIC
    ):
        return None
    flags, at = compressed[begin + 3], begin + _GZIP_HEADER_BYTES
    if flags & _GZIP_HAS_EXTRA:
        at += 2 + int.from_bytes(compressed[at : at + 2], "little")
    for flag in _GZIP_TEXTS:
        if flags & flag:
            while at < len(compressed) and compressed[at]:
                at += 1
            at += 1
    if flags & _GZIP_HAS_CHECKSUM:
        stated = int.from_bytes(compressed[at : at + 2], "little")
        if stated != zlib.crc32(compressed[begin:at]) & 0xFFFF:
            return None
        at += 2
    return at if at <= len(compressed) else None


def snappy_blocks(compressed: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of xerial's framing, whose header may be repeated; without it, one block.

    Up to three bytes behind a block, and all bytes behind half a header, are not read.

    Raises:
        FramingError: A block or a header is truncated.
    """
    if len(compressed) < _SNAPPY_HEADER.size or bytes(compressed[:8]) != _SNAPPY_MAGIC:
        yield compressed
        return
    at = _SNAPPY_HEADER.size
    while len(compressed) - at >= _SNAPPY_LENGTH_BYTES:
        if bytes(compressed[at : at + 4]) == _SNAPPY_MAGIC[:4]:
            if len(compressed) - at < _SNAPPY_HEADER.size:
                raise FramingError("a snappy header is truncated")
            magic, version, _ = _SNAPPY_HEADER.unpack_from(compressed, at)
            if magic != _SNAPPY_MAGIC:
                return
            if version < 1:
                raise FramingError(f"a snappy header has the unknown version {version}")
            at += _SNAPPY_HEADER.size
            continue
        length = int.from_bytes(compressed[at : at + 4], "big", signed=True)
        at += _SNAPPY_LENGTH_BYTES
        if not 0 < length <= len(compressed) - at:
            raise FramingError("a snappy block is truncated")
        yield compressed[at : at + length]
        at += length


def snappy_size(block: memoryview) -> int:
    """Return the decompressed size of a block, which is stated at its beginning.

    Raises:
        FramingError: There is no size, or one that the block is too short for.
    """
    size = 0
    for index, byte in enumerate(block[:_SNAPPY_SIZE_BYTES]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if size > _SNAPPY_RATIO_MAX * len(block):
                raise FramingError(f"a snappy block of {len(block)} bytes states {size} bytes")
            return size
    raise FramingError("a snappy block has no length")


def first_lz4_frame(compressed: memoryview) -> memoryview:
    """Return the first frame, without the size and the checksum that Kafka ignores.

    Nothing behind it is read. Bytes that are no such frame are returned unchanged, for a library to
    name the fault.
    """
    size_at = _LZ4_SIZE_AT
    flags = compressed[_LZ4_FLAGS_AT] if len(compressed) > size_at else _LZ4_REFUSED
    if flags & _LZ4_REFUSED or bytes(compressed[:_LZ4_FLAGS_AT]) != _LZ4_MAGIC:
        return compressed
    checksum_at = size_at + (_LZ4_SIZE_BYTES if flags & _LZ4_HAS_SIZE else 0)
    begin = checksum_at + 1
    end = _lz4_blocks_end(compressed, begin, has_checksums=bool(flags & _LZ4_HAS_BLOCK_CHECKSUMS))
    if end is None:
        return compressed
    # Kafka also takes an empty block that is stored for the end mark.
    if not (flags & (_LZ4_HAS_SIZE | _LZ4_HAS_CHECKSUM) or compressed[end - 1]):
        return compressed[:end]
    is_cut = flags & _LZ4_HAS_CHECKSUM and len(compressed) - end < _LZ4_CHECKSUM_BYTES
    stated = _lz4_header_checksum(bytes(compressed[_LZ4_FLAGS_AT:checksum_at]))
    if is_cut or compressed[checksum_at] != stated:
        return compressed
    header = bytes((flags & ~(_LZ4_HAS_SIZE | _LZ4_HAS_CHECKSUM), compressed[size_at - 1]))
    checksum = bytes((_lz4_header_checksum(header),))
    body = compressed[begin : end - len(_LZ4_END)]
    return memoryview(_LZ4_MAGIC + header + checksum + body + _LZ4_END)


def _lz4_blocks_end(compressed: memoryview, at: int, *, has_checksums: bool) -> int | None:
    """Return the position after the end mark of a frame, None if it has none."""
    while len(compressed) - at >= 4:
        size = int.from_bytes(compressed[at : at + 4], "little") & ~_LZ4_IS_STORED
        at += 4
        if size == 0:
            return at
        at += size + (_LZ4_CHECKSUM_BYTES if has_checksums else 0)
    return None


def _lz4_header_checksum(header: bytes) -> int:
    """Return the second byte of the xxHash (32 bits) of less than 16 bytes."""
    total = 374761393 + len(header)
    at = 0
    while len(header) - at >= 4:
        word = int.from_bytes(header[at : at + 4], "little")
        total = total + word * 3266489917 & 0xFFFFFFFF
        total = (total << 17 | total >> 15) * 668265263 & 0xFFFFFFFF
        at += 4
    for byte in header[at:]:
        total = total + byte * 374761393 & 0xFFFFFFFF
        total = (total << 11 | total >> 21) * 2654435761 & 0xFFFFFFFF
    total = (total ^ total >> 15) * 2246822519 & 0xFFFFFFFF
    total = (total ^ total >> 13) * 3266489917 & 0xFFFFFFFF
    return (total ^ total >> 16) >> 8 & 0xFF


def whole_zstd_frames(compressed: memoryview) -> memoryview:
    """Return the frames without an incomplete one behind them.

    Kafka reads as much of that one as there is: a batch that needs it lacks records here.
    """
    at: int | None = 0
    end = 0
    while at is not None and at < len(compressed):
        end, at = at, zstd_frame_end(compressed, at)
    return compressed[:end] if end and at is not None and at > len(compressed) else compressed


def zstd_frame_end(compressed: bytes | memoryview, begin: int) -> int | None:
    """Return where a frame ends, after all bytes if it is incomplete; None: it is no frame."""
    incomplete = len(compressed) + 1
    magic = bytes(compressed[begin : begin + 4])
    if magic != _ZSTD_MAGIC[: len(magic)]:
        is_skippable = magic[0] & 0xF0 == _ZSTD_SKIPPABLE[0]
        if not is_skippable or magic[1:] != _ZSTD_SKIPPABLE[1 : len(magic)]:
            return None
        if len(compressed) - begin < _ZSTD_SKIPPABLE_HEADER_BYTES:
            return incomplete
        return begin + 8 + int.from_bytes(compressed[begin + 4 : begin + 8], "little")
    if len(compressed) - begin <= len(_ZSTD_MAGIC):
        return incomplete
    descriptor = compressed[begin + 4]
    is_single = descriptor & _ZSTD_IS_SINGLE != 0
    size_bytes = _ZSTD_SIZE_BYTES[descriptor >> 6] or int(is_single)
    at = begin + 5 + (not is_single) + _ZSTD_DICTIONARY_BYTES[descriptor & 3] + size_bytes
    is_last = False
    while not is_last:
        if len(compressed) - at < _ZSTD_BLOCK_HEADER_BYTES:
            return incomplete
        header = compressed[at] | compressed[at + 1] << 8 | compressed[at + 2] << 16
        is_last, is_repeated = header & 1 != 0, header >> 1 & 3 == _ZSTD_REPEATED
        at += _ZSTD_BLOCK_HEADER_BYTES + (1 if is_repeated else header >> 3)
    return at + (_ZSTD_CHECKSUM_BYTES if descriptor & _ZSTD_HAS_CHECKSUM else 0)
