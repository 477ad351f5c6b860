"""Decompression: the original bytes, or an error; never more memory than allowed."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
import zstandard

from spark_groups.errors import RecordsError
from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.records.codecs import DecompressionError, Decompressor
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import RangeCursor
from workshop.parts.decoding import TP
from workshop.parts.encoding import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    Batch,
    Record,
    compress,
    xerial,
)

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
BODIES = [b"", b"x", bytes(range(256)) * 5000, random.Random(3).randbytes(300_000)]


def plain(codec: int, compressed: bytes, bytes_max: int = 4_000_000) -> bytes:
    octets = np.frombuffer(compressed, np.uint8)
    return Decompressor(bytes_max).decompress(codec, octets).tobytes()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", BODIES, ids=len)
def test_a_compressed_body_comes_back(codec: int, body: bytes) -> None:
    assert plain(codec, compress(codec, body)) == body


@pytest.mark.parametrize("body", BODIES, ids=len)
def test_snappy_of_java_is_framed(body: bytes) -> None:
    assert plain(SNAPPY, xerial(body)) == body


@pytest.mark.parametrize("level", [1, 22])
@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize("states_size", [False, True])
def test_frames_of_zstd_of_every_form_follow_each_other(
    level: int, is_checked: bool, states_size: bool
) -> None:
    compressor = zstandard.ZstdCompressor(
        level, write_checksum=is_checked, write_content_size=states_size
    )
    decompressor = Decompressor(4_000_000)
    for body in BODIES:
        single = compressor.compress(body)
        for compressed, expected in (
            (single, body),
            (single + single, body + body),
            (b"\x50\x2a\x4d\x18\x03\0\0\0abc" + single, body),
        ):
            octets = np.frombuffer(compressed, np.uint8)
            assert decompressor.decompress(ZSTD, octets).tobytes() == expected
        with pytest.raises(DecompressionError):
            decompressor.decompress(ZSTD, np.frombuffer(single + b"x", np.uint8))
        with pytest.raises(DecompressionError):
            decompressor.decompress(ZSTD, np.frombuffer(single[:-1], np.uint8))


def test_memory_is_used_again() -> None:
    decompressor = Decompressor(4_000_000)
    first = decompressor.decompress(LZ4, np.frombuffer(compress(LZ4, b"one"), np.uint8))
    second = decompressor.decompress(ZSTD, np.frombuffer(compress(ZSTD, b"two"), np.uint8))
    assert second.tobytes() == b"two"
    assert np.shares_memory(first, second)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_xerial", [False, True])
def test_limit_is_exact(codec: int, is_xerial: bool) -> None:
    body = bytes(1_000_000)
    compressed = compress(codec, body, is_xerial=is_xerial)
    assert plain(codec, compressed, len(body)) == body
    with pytest.raises(DecompressionError, match="exceeds 999999 bytes"):
        plain(codec, compressed, len(body) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_takes_no_more_memory_than_allowed(codec: int) -> None:
    bomb = np.frombuffer(compress(codec, bytes(50_000_000), is_xerial=True), np.uint8)
    decompressor = Decompressor(100_000)
    with pytest.raises(DecompressionError, match="exceeds 100000 bytes"):
        decompressor.decompress(codec, bomb)
    assert decompressor.body.nbytes <= 100_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_xerial", [False, True])
def test_a_cut_or_damaged_body_is_refused_or_decompressed(codec: int, is_xerial: bool) -> None:
    chance = random.Random(codec)
    compressed = compress(codec, bytes(range(256)) * 20, is_xerial=is_xerial)
    outcomes = set()
    for _ in range(200):
        spoilt = bytearray(compressed[: chance.randint(0, len(compressed))])
        for _ in range(chance.choice((0, 1, 3))):
            if spoilt:
                spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            outcomes.add(len(plain(codec, bytes(spoilt), 100_000)) <= 100_000)
        except DecompressionError:
            outcomes.add(False)
    assert False in outcomes


@pytest.mark.parametrize(
    "compressed",
    [
        b"",
        b"\xff" * 5,
        b"\xff\xff\xff\xff\x0f",
        XERIAL_MAGIC + bytes(8) + struct.pack(">i", 2**31 - 1),
        XERIAL_MAGIC + bytes(8) + struct.pack(">i", -1),
        XERIAL_MAGIC + bytes(8) + struct.pack(">i", 0),
    ],
)
def test_hostile_lengths_of_snappy_are_refused(compressed: bytes) -> None:
    with pytest.raises(DecompressionError):
        plain(SNAPPY, compressed)


def test_blocks_of_snappy_that_hold_nothing_are_refused() -> None:
    empty = struct.pack(">i", 1) + b"\0"
    with pytest.raises(DecompressionError, match="1025 snappy blocks contain only 0 bytes"):
        plain(SNAPPY, XERIAL_MAGIC + bytes(8) + 200_000 * empty)


@pytest.mark.parametrize("block_bytes", [200, 1024])
def test_short_blocks_of_snappy_are_read(block_bytes: int) -> None:
    body = bytes(range(256)) * 4096
    assert plain(SNAPPY, xerial(body, block_bytes)) == body


@pytest.mark.parametrize("codec", [0, 5, 6, 7])
def test_codec_that_there_is_not_is_refused(codec: int) -> None:
    with pytest.raises(DecompressionError, match=f"unknown codec {codec}"):
        plain(codec, b"x")


def test_error_says_where_it_is() -> None:
    response = Batch(5, (Record(),), codec=ZSTD).encode(b"this is no zstd")
    with pytest.raises(RecordsError, match=r"flights-3 that has offset 5 .* decompressed"):
        list(RecordDecoder(ROW_SCHEMA).decode(response, RangeCursor(TP, 5, 9)))
