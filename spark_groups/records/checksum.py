"""CRC-32C of a part of an array, with the processor's instruction if it has one.

The instruction takes eight bytes, and its result is available three cycles later, while one
can start in each cycle: three adjacent stretches are computed in parallel, and their checksums
combined.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spark_groups.records.compiling import (
    compiled,
    crc32c_of_8_bytes,
    has_crc32c_instruction,
    load_64,
)

_POLYNOMIAL: Final = 0x82F63B78
_WORD_BYTES: Final = 8
STRETCH_BYTES: Final = 512
"""The length of each of three parallel stretches."""


def _byte_tables() -> npt.NDArray[np.uint32]:
    """Return for k = 0..7 the effect of each byte, followed by k zero bytes, on a checksum."""
    tables = np.zeros((_WORD_BYTES, 256), np.uint32)
    for byte in range(256):
        checksum = byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (_POLYNOMIAL if checksum & 1 else 0)
        tables[0, byte] = checksum
    for zeros in range(1, _WORD_BYTES):
        before = tables[zeros - 1]
        tables[zeros] = before >> 8 ^ tables[0, before & 0xFF]
    return tables


def _shift_tables() -> npt.NDArray[np.uint32]:
    """Return for each of its four bytes the effect of a stretch of zeros on a checksum."""
    shifted = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for _ in range(STRETCH_BYTES):
        shifted = shifted >> 8 ^ _BYTES[0, shifted & 0xFF]
    return shifted


_BYTES: Final = _byte_tables()
_SHIFT: Final = _shift_tables()


@compiled
def _shift(checksum: np.uint64) -> np.uint64:
    """Return a checksum after a stretch of zeros."""
    low = _SHIFT[0, checksum & 0xFF] ^ _SHIFT[1, checksum >> 8 & 0xFF]
    return np.uint64(low ^ _SHIFT[2, checksum >> 16 & 0xFF] ^ _SHIFT[3, checksum >> 24 & 0xFF])


@compiled
def _by_instruction(
    checksum: np.uint64, octets: npt.NDArray[np.uint8], begin: int, end: int
) -> tuple[np.uint64, int]:
    """Process the whole words; return the checksum and the position after them."""
    at = begin
    while end - at >= 3 * STRETCH_BYTES:
        second, third = np.uint64(0), np.uint64(0)
        for index in range(at, at + STRETCH_BYTES, _WORD_BYTES):
            checksum = crc32c_of_8_bytes(checksum, load_64(octets, index))
            second = crc32c_of_8_bytes(second, load_64(octets, index + STRETCH_BYTES))
            third = crc32c_of_8_bytes(third, load_64(octets, index + 2 * STRETCH_BYTES))
        checksum = _shift(_shift(checksum) ^ second) ^ third
        at += 3 * STRETCH_BYTES
    while end - at >= _WORD_BYTES:
        checksum = crc32c_of_8_bytes(checksum, load_64(octets, at))
        at += _WORD_BYTES
    return checksum, at


@compiled
def _by_tables(
    checksum: np.uint64, octets: npt.NDArray[np.uint8], begin: int, end: int
) -> tuple[np.uint64, int]:
    """Do the same without the instruction, with a table for each byte of a word."""
    at = begin
    while end - at >= _WORD_BYTES:
        word = checksum ^ load_64(octets, at)
        total = np.uint32(0)
        for index in range(_WORD_BYTES):
            total ^= _BYTES[_WORD_BYTES - 1 - index, word >> np.uint64(8 * index) & np.uint64(0xFF)]
        checksum = np.uint64(total)
        at += _WORD_BYTES
    return checksum, at


_by_words = _by_instruction if has_crc32c_instruction() else _by_tables


@compiled
def crc32c(octets: npt.NDArray[np.uint8], begin: int, end: int) -> Any:
    """Return the CRC-32C of a part of an array.

    The caller ensures 0 <= begin <= end <= len(octets).

    Source: RFC 3720, B.4.
    """
    checksum, at = _by_words(np.uint64(0xFFFFFFFF), octets, begin, end)
    while at < end:
        byte = np.uint64(octets[at])
        checksum = checksum >> np.uint64(8) ^ np.uint64(
            _BYTES[0, (checksum ^ byte) & np.uint64(0xFF)]
        )
        at += 1
    return np.int64(checksum ^ np.uint64(0xFFFFFFFF))
