"""Decompression of lz4 and snappy by compiled code: a call from Python costs as much as the codec.

It only serves batches as producers write them. All others (damaged bytes, dictionaries, too little
room) are refused, and left to pyarrow's codecs: those decide, and word the errors. Like Kafka's
consumer, it reads the first frame of lz4, without its checksum. Every index is checked before it is
used.

Source: the LZ4 block and frame formats, and the checks of LZ4_decompress_safe; snappy's format
description; SnappyOutputStream of xerial/snappy-java; the specification of xxHash.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import int64, typeof

from spark_groups.records.compiling import (
    compiled,
    copy_16,
    copy_16_of,
    copy_bytes,
    entry_point,
    load_64,
)
from spark_groups.records.layout import Octets

REFUSED: Final = -1

SNAPPY: Final = 2
LZ4: Final = 3

_LZ4_MAGIC: Final = 0x184D2204
_VERSION_AND_RESERVED: Final = 0xC2
_VERSION: Final = 0x40
_IS_INDEPENDENT: Final = 0x20
_HAS_BLOCK_CHECKSUMS: Final = 0x10
_HAS_CONTENT_SIZE: Final = 0x08
_HAS_CONTENT_CHECKSUM: Final = 0x04
_HAS_DICTIONARY: Final = 0x01
_IS_STORED: Final = 1 << 31
_LEAST_FRAME_BYTES: Final = 11
_LEAST_MATCH: Final = 4
_REACH: Final = 1 << 16
"""Bytes; no match of lz4 lies so far back, because its distance has two bytes."""
# Where LZ4_decompress_safe demands the last literals of a block: bytes left of it, and of the room.
_LAST_INPUT: Final = 8
_LAST_ROOM: Final = 12
_LAST_LITERALS: Final = 5

_XERIAL_MAGIC: Final = 0x005950_50414E5382
_XERIAL_HEADER_BYTES: Final = 16
_AMPLE: Final = 96
"""With so many bytes left and so much room, short pieces are copied in words, without checks."""
_BYTE: Final = np.uint64(0xFF)
_TWO_BYTES: Final = np.uint64(0xFFFF)
_LONG: Final = 60
"""From this value on, the length of a literal is in the bytes after the tag."""

_MASK: Final = np.uint64(0xFFFFFFFF)
_PRIME_1: Final = np.uint64(2654435761)
_PRIME_2: Final = np.uint64(2246822519)
_PRIME_3: Final = np.uint64(3266489917)
_PRIME_5: Final = np.uint64(374761393)


def _short_elements() -> Any:
    """Return a table of the short elements of a snappy block, by tag.

    `count` is the number of decompressed bytes, 0 if the element is not short; `size` that of the
    compressed ones. The distance is `distance` plus the bits that `mask` takes from the two bytes
    after the tag. A literal has no distance: 16 lets it pass the check for a copy.
    """
    fields = [("mask", "u8"), ("distance", "i4"), ("count", "u1"), ("size", "u1")]
    short = np.zeros(256, np.dtype([*fields, ("is_literal", "?")], align=True))
    for tag in range(256):
        kind, upper = tag & 3, tag >> 2
        if kind == 0 and upper < 16:
            short[tag] = (0, 16, upper + 1, upper + 2, True)
        elif kind == 1:
            short[tag] = (0xFF, upper >> 3 << 8, (upper & 7) + 4, 2, False)
        elif kind == 2:
            short[tag] = (0xFFFF, 0, upper + 1, 3, False)
    return short


_SHORT: Final = _short_elements()


@compiled
def _little(octets: Octets, at: Any, count: Any) -> Any:
    """Return a little-endian number of up to four bytes."""
    value = np.int64(0)
    for index in range(count):
        value |= np.int64(octets[at + index]) << (8 * index)
    return value


@compiled
def _header_checksum(wire: Octets, at: Any) -> Any:
    """Return the checksum of a frame's header: of the xxHash (32 bits) of two bytes, the second."""
    total = _PRIME_5 + np.uint64(2)
    for index in range(2):
        total = (total + np.uint64(wire[at + index]) * _PRIME_5) & _MASK
        total = (total << np.uint64(11) | total >> np.uint64(21)) * _PRIME_1 & _MASK
    total = (total ^ total >> np.uint64(15)) * _PRIME_2 & _MASK
    total = (total ^ total >> np.uint64(13)) * _PRIME_3 & _MASK
    return np.int64(total ^ total >> np.uint64(16)) >> 8 & 0xFF


@compiled
def _copy_far(room: Any, to: Any, distance: Any, count: Any) -> None:
    """Append up to 64 bytes from at least 16 before `to`; `_AMPLE` bytes of room are left."""
    copy_16(room, to, room, to - distance)
    if count > 16:
        copy_16(room, to + 16, room, to + 16 - distance)
        if count > 32:
            copy_16(room, to + 32, room, to + 32 - distance)
            copy_16(room, to + 48, room, to + 48 - distance)


@compiled
def _repeat(room: Any, to: Any, distance: Any, count: Any) -> None:
    """Append bytes that lie `distance` behind; the caller has checked the bounds."""
    end = to + count
    if distance < 16:
        # A multiple of the distance is as good, once there are so many bytes.
        multiple = distance * ((15 + distance) // distance)
        near = min(end, to + multiple - distance)
        while to < near:
            room[to] = room[to - distance]
            to += 1
        distance = multiple
    while to < end and to + 16 <= len(room):
        # The next copy overwrites the surplus.
        copy_16(room, to, room, to - distance)
        to += 16
    while to < end:
        room[to] = room[to - distance]
        to += 1


@compiled
def _lz4_length(wire: Octets, at: Any, end: Any, length: Any) -> tuple[Any, Any]:
    """Return a length of which the token holds a part, and the position after it."""
    if length == 15:
        byte: Any = 255
        while byte == 255:
            if at >= end:
                return length, end + 1
            byte = np.int64(wire[at])
            length += byte
            at += 1
    return length, at


@compiled
def _lz4_block(wire: Octets, at: Any, end: Any, room: Any, low: Any, to: Any, to_end: Any) -> Any:
    """Decompress a block.

    Args:
        low: Where the bytes begin that matches may refer to.
        to: Where the block's bytes go.
        to_end: Their limit, at most the length of `room`.

    Returns:
        The position after them, or `REFUSED`.
    """
    while at < end:
        if end - at >= _AMPLE and to_end - to >= _AMPLE:
            # Most sequences are short and refer to distant bytes: two or three instructions.
            token: Any = np.int64(load_64(wire, at) & _BYTE)
            near, count = (token >> 4) + 1, (token & 15) + _LEAST_MATCH
            distance = np.int64(load_64(wire, at + near) & _TWO_BYTES)
            if near < 16 and count < 15 + _LEAST_MATCH and 16 <= distance < to + near - low:
                copy_16(room, to, wire, at + 1)
                at, to = at + near + 2, to + near - 1
                _copy_far(room, to, distance, count)
                to += count
                continue
        token = np.int64(wire[at])
        literals, at = _lz4_length(wire, at + 1, end, token >> 4)
        if at > end or literals > end - at or literals > to_end - to:
            return REFUSED
        copy_bytes(room, to, wire, at, literals)
        at, to = at + literals, to + literals
        if at == end:
            return to
        if at > end - _LAST_INPUT or to > to_end - _LAST_ROOM:
            return REFUSED
        distance = _little(wire, at, 2)
        count, at = _lz4_length(wire, at + 2, end, token & 15)
        count += _LEAST_MATCH
        if at > end or not 0 < distance <= to - low or count > to_end - _LAST_LITERALS - to:
            return REFUSED
        _repeat(room, to, distance, count)
        to += count
    return REFUSED


@compiled
def _lz4_header(wire: Octets, at: Any, end: Any) -> tuple[Any, Any, Any]:
    """Return the flags of a frame, its block size and where its blocks begin, or `REFUSED`."""
    if end - at < _LEAST_FRAME_BYTES or _little(wire, at, 4) != _LZ4_MAGIC:
        return REFUSED, 0, 0
    flags, sizes = np.int64(wire[at + 4]), np.int64(wire[at + 5])
    if (
        flags & _VERSION_AND_RESERVED != _VERSION
        or flags & (_HAS_BLOCK_CHECKSUMS | _HAS_CONTENT_SIZE | _HAS_DICTIONARY)
        or sizes & 0x8F
        or sizes < 0x40
    ):
        return REFUSED, 0, 0
    if np.int64(wire[at + 6]) != _header_checksum(wire, at + 4):
        return REFUSED, 0, 0
    return flags, 1 << (8 + 2 * (sizes >> 4)), at + 7


@compiled
def _lz4_frame(wire: Octets, at: Any, end: Any, room: Any) -> Any:
    flags, block_bytes, at = _lz4_header(wire, at, end)
    if flags == REFUSED:
        return REFUSED
    to = 0
    while end - at >= 4:
        size = _little(wire, at, 4)
        at += 4
        is_stored, size = size & _IS_STORED, size & (_IS_STORED - 1)
        if size == 0:
            break
        to_end = min(to + block_bytes, len(room))
        if size > end - at or size > block_bytes:
            return REFUSED
        if is_stored:
            if size > to_end - to:
                return REFUSED
            copy_bytes(room, to, wire, at, size)
            to += size
        else:
            low = to if flags & _IS_INDEPENDENT else max(0, to - _REACH)
            to = _lz4_block(wire, at, at + size, room, low, to, to_end)
            if to == REFUSED:
                return REFUSED
        at += size
    else:
        return REFUSED
    return REFUSED if flags & _HAS_CONTENT_CHECKSUM and end - at < 4 else to


@compiled
def _snappy_size(wire: Octets, at: Any, end: Any) -> tuple[Any, int]:
    """Return how long a block becomes, and where it begins; after `end` if that is not stated."""
    size = np.int64(0)
    for index in range(5):
        if at >= end:
            break
        byte = np.int64(wire[at])
        at += 1
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size, at
    return 0, end + 1


@compiled
def _snappy_block(wire: Octets, at: Any, end: Any, room: Any, to: Any) -> Any:
    """Decompress a block, and return the position after its bytes, or `REFUSED`."""
    size, at = _snappy_size(wire, at, end)
    if at > end or size > len(room) - to:
        return REFUSED
    low, to_end = to, to + size
    while at < end:
        if end - at >= _AMPLE and to_end - to >= _AMPLE:
            word = load_64(wire, at)
            short = _SHORT[word & _BYTE]
            count = np.int64(short.count)
            distance = np.int64(word >> np.uint64(8) & short.mask) + np.int64(short.distance)
            if count and 16 <= distance <= to - low:
                copy_16_of(room, to, short.is_literal, wire, at + 1, room, to - distance)
                if count > 16:
                    _copy_far(room, to, distance, count)
                at, to = at + np.int64(short.size), to + count
                continue
        tag: Any = np.int64(wire[at])
        at += 1
        kind, upper = tag & 3, tag >> 2
        more = max(0, upper - (_LONG - 1)) if kind == 0 else (kind if kind < 3 else 4)
        if more > end - at:
            return REFUSED
        number = _little(wire, at, more)
        at += more
        if kind == 0:
            count = (number if more else upper) + 1
            if count > end - at or count > to_end - to:
                return REFUSED
            copy_bytes(room, to, wire, at, count)
            at += count
        else:
            count = (upper & 7) + 4 if kind == 1 else upper + 1
            distance = (upper >> 3) << 8 | number if kind == 1 else number
            if not 0 < distance <= to - low or count > to_end - to:
                return REFUSED
            _repeat(room, to, distance, count)
        to += count
    return to if to == to_end else REFUSED


@compiled
def _snappy(wire: Octets, at: Any, end: Any, room: Any) -> Any:
    """Decompress one block, or several of them as Java's producers write them."""
    is_framed = end - at >= _XERIAL_HEADER_BYTES and load_64(wire, at) == np.uint64(_XERIAL_MAGIC)
    if not is_framed:
        return _snappy_block(wire, at, end, room, 0)
    at, to = at + _XERIAL_HEADER_BYTES, 0
    while at < end:
        if end - at < 4:
            return REFUSED
        length: Any = np.int64(0)
        for index in range(at, at + 4):
            length = length << 8 | np.int64(wire[index])
        at += 4
        if length > end - at:
            return REFUSED
        before, to = to, _snappy_block(wire, at, at + length, room, to)
        # Each block brings something, or there could be any number of them.
        if to <= before:
            return REFUSED
        at += length
    return to


@entry_point(
    int64(
        int64,
        typeof(np.frombuffer(b"-", np.uint8)),
        int64,
        int64,
        typeof(np.empty(1, np.uint8)),
    )
)
def unpack(codec: int, wire: Octets, begin: int, end: int, room: Octets) -> int:
    """Decompress a batch, if it is an ordinary one that fits the room.

    Args:
        codec: The codec's number in the attributes of a batch.
        wire: Holds the compressed bytes.
        begin: Where they begin; 0 <= begin <= end <= len(wire).
        end: Where they end.
        room: Receives the bytes; memory after them may be overwritten.

    Returns:
        How many bytes there are, or `REFUSED`.
    """
    if codec == LZ4:
        return int(_lz4_frame(wire, begin, end, room))
    if codec == SNAPPY:
        return int(_snappy(wire, begin, end, room))
    return REFUSED
