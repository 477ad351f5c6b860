"""CRC-32C against its published values, and against the definition, bit by bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numba import int64, njit, typeof, uint64

from spark_groups.records import checksum
from spark_groups.records.compiling import has_crc32c_instruction
from workshop.parts.encoding import crc32c

OCTETS = typeof(np.frombuffer(b"-", np.uint8))
STRETCHES = 3 * checksum.STRETCH_BYTES


@njit(int64(OCTETS, int64, int64))
def compiled_crc32c(octets, begin, end):
    return checksum.crc32c(octets, begin, end)


def by(words):
    """Return a compiled checksum of whole words, by the instruction or by tables."""

    @njit(uint64(OCTETS))
    def of(octets):
        value, _ = words(uint64(0xFFFFFFFF), octets, 0, len(octets))
        return value ^ uint64(0xFFFFFFFF)

    return of


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_values(octets: bytes, expected: int) -> None:
    """RFC 3720, B.4; and the check value of the catalogue of CRCs."""
    assert compiled_crc32c(np.frombuffer(octets, np.uint8), 0, len(octets)) == expected
    assert crc32c(octets) == expected


@pytest.mark.parametrize("size", [*range(25), STRETCHES - 1, STRETCHES, STRETCHES + 9, 10_000])
def test_any_part_of_an_array(size: int) -> None:
    octets = random.Random(size).randbytes(size + 20)
    for begin in (0, 1, 7, 13):
        found = compiled_crc32c(np.frombuffer(octets, np.uint8), begin, begin + size)
        assert found == crc32c(octets[begin : begin + size])


def test_tables_do_without_the_instruction() -> None:
    octets = random.Random(1).randbytes(8 * 1000)
    array = np.frombuffer(octets, np.uint8)
    assert by(checksum._by_tables)(array) == crc32c(octets)
    if has_crc32c_instruction():
        assert by(checksum._by_instruction)(array) == crc32c(octets)
