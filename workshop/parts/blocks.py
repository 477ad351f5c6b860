"""Bodies of batches in the forms that compression gives them."""

from __future__ import annotations

import random
import struct

import pyarrow as pa

from workshop.parts.encoding import LZ4, SNAPPY, compress, xerial

WORDS = [random.Random(word).randbytes(random.Random(word).randint(1, 40)) for word in range(300)]


INDEPENDENT, CHECKED = b"\x60\x40\x82", b"\x64\x40\xa7"
"""Headers of lz4 frames, as Java and as Go write them, with the checksum of the header."""


def body_of(chance: random.Random) -> bytes:
    """Return bytes with literals and matches of many lengths, near and far."""
    size = chance.choice((0, 1, 15, 17, 100, 3_000, 70_000, 200_000))
    body = bytearray()
    while len(body) < size:
        kind = chance.randrange(4)
        if kind == 0:
            body += chance.randbytes(chance.choice((1, 5, 16, 59, 61, 300)))
        elif kind == 1:
            body += chance.randbytes(chance.randint(1, 17)) * chance.randint(1, 60)
        else:
            body += b"".join(chance.choices(WORDS, k=30))
    return bytes(body[:size])


def xxh32(octets: bytes) -> int:
    """The checksum of lz4 frames, after its specification."""
    primes = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    one, two, three, four, five = primes

    def turn(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> 32 - bits) & 0xFFFFFFFF

    whole = len(octets) // 16 * 16
    total = five
    if whole:
        lanes = [one + two, two, 0, -one]
        for at in range(0, whole, 16):
            words = struct.unpack_from("<4I", octets, at)
            lanes = [
                turn(lane + word * two, 13) * one for lane, word in zip(lanes, words, strict=True)
            ]
        total = sum(turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    total += len(octets)
    rest = octets[whole:]
    for at in range(0, len(rest) // 4 * 4, 4):
        total = turn(total + struct.unpack_from("<I", rest, at)[0] * three, 17) * four
    for byte in rest[len(rest) // 4 * 4 :]:
        total = turn(total + byte * five, 11) * one
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * two & 0xFFFFFFFF
    total = (total ^ total >> 13) * three & 0xFFFFFFFF
    return total ^ total >> 16


def frame(body: bytes, header: bytes = INDEPENDENT) -> bytes:
    """Return an lz4 frame of independent blocks."""
    framed = [b"\x04\x22\x4d\x18", header]
    for begin in range(0, len(body), 65536):
        piece = body[begin : begin + 65536]
        block = bytes(pa.compress(piece, "lz4_raw", asbytes=True))
        is_stored = len(block) >= len(piece)
        size = len(piece) | 1 << 31 if is_stored else len(block)
        framed += [struct.pack("<I", size), piece if is_stored else block]
    checksum = struct.pack("<I", xxh32(body)) if header == CHECKED else b""
    return b"".join([*framed, bytes(4), checksum])


def forms(body: bytes) -> list[tuple[int, bytes]]:
    return [
        (LZ4, compress(LZ4, body)),
        (LZ4, frame(body)),
        (LZ4, frame(body, CHECKED)),
        (SNAPPY, compress(SNAPPY, body)),
        (SNAPPY, xerial(body)),
    ]
