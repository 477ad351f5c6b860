"""Compressed parts of batches, against what Kafka's own classes read (`test_unusual_batches`)."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib

import pyarrow as pa
import pytest
import zstandard

from spark_groups.compressed import (
    FramingError,
    first_lz4_frame,
    gzip_chunks,
    snappy_blocks,
    snappy_size,
    whole_zstd_frames,
    zstd_frame_end,
)
from workshop.parts.encoding import GZIP, LZ4, XERIAL_MAGIC, compress, xerial

MEMBER = compress(GZIP, b"value")


def inflated(octets: bytes, chunk_bytes: int = 1000) -> bytes:
    return b"".join(gzip_chunks(memoryview(octets), chunk_bytes))


@pytest.mark.parametrize("seed", range(20))
def test_members_of_gzip_follow_each_other(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice((0, 1, 300, 5_000, 300_000)) for _ in range(chance.choice((1, 2, 9)))]
    bodies = [chance.randbytes(size // 2) + bytes(size // 2) for size in sizes]
    members = [gzip.compress(each, chance.choice((0, 1, 9)), mtime=0) for each in bodies]
    assert inflated(b"".join(members), chance.choice((1000, 1 << 18))) == b"".join(bodies)


@pytest.mark.parametrize(
    "behind",
    [
        bytes(4),
        bytes(4096),
        b"padding" * 9,
        MEMBER[:9],
        # Too short for Java to look for a member in it.
        MEMBER[:10] + b"\xff" * 8,
        # The checksum of its header is wrong.
        MEMBER[:3] + b"\x02" + MEMBER[4:10] + b"\0\0" + MEMBER[10:],
        # Its comment does not end.
        MEMBER[:3] + b"\x10" + MEMBER[4:10] + b"x" * 99,
    ],
)
def test_bytes_behind_a_member_that_are_no_header_are_not_read(behind: bytes) -> None:
    assert inflated(MEMBER + behind) == b"value"


def test_a_member_may_have_all_fields_of_a_header() -> None:
    header = b"\x1f\x8b\x08\xfe" + bytes(6) + b"\x03\0abc" + b"name\0" + b"comment\0"
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    assert inflated(MEMBER + header + MEMBER[10:]) == b"valuevalue"


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"x" + MEMBER,
        MEMBER[:-1],
        MEMBER[:-8],
        MEMBER[:12],
        MEMBER[:-5] + b"x" + MEMBER[-4:],
        MEMBER[:-1] + b"x",
        MEMBER + MEMBER[:-1],
        MEMBER + MEMBER[:10] + b"\xff" * 9,
    ],
)
def test_a_damaged_or_truncated_member_is_refused(octets: bytes) -> None:
    with pytest.raises(FramingError):
        inflated(octets)


def test_members_without_bytes_take_time_that_grows_with_their_number_and_no_memory() -> None:
    octets = memoryview(20_000 * compress(GZIP, b"") + MEMBER)
    tracemalloc.start()
    assert b"".join(gzip_chunks(octets, 1000)) == b"value"
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def blocks(octets: bytes) -> list[bytes]:
    return [bytes(each) for each in snappy_blocks(memoryview(octets))]


def test_blocks_of_snappy_continue_behind_another_header() -> None:
    one, two = xerial(b"one"), xerial(b"two")
    expected = [one[20:], two[20:]]
    assert blocks(one + two) == expected
    assert blocks(one + xerial(b"") + two) == expected
    assert blocks(one + b"\0\0\0") == expected[:1]
    # Half a magic number ends the stream.
    assert blocks(one + XERIAL_MAGIC[:4] + b"1234" + bytes(8) + two) == expected[:1]
    assert blocks(b"no header") == [b"no header"]


@pytest.mark.parametrize(
    "behind", [bytes(4), b"\0\0\0\x09abc", XERIAL_MAGIC, XERIAL_MAGIC + bytes(8), b"\xff" * 4]
)
def test_a_truncated_block_or_header_of_snappy_is_refused(behind: bytes) -> None:
    with pytest.raises(FramingError):
        blocks(xerial(b"one") + behind)


def test_a_size_that_a_block_of_snappy_is_too_short_for_is_refused() -> None:
    block = memoryview(bytes(pa.compress(bytes(1_000_000), "snappy", asbytes=True)))
    assert snappy_size(block) == 1_000_000
    for other in (b"", b"\xff" * 5, b"\x80" * 9, bytes(block[: len(block) // 2]), b"\x7f\0\0"):
        with pytest.raises(FramingError):
            snappy_size(memoryview(other))


def test_only_the_first_frame_of_lz4_is_read() -> None:
    frame = compress(LZ4, b"value" * 9)
    for behind in (b"", b"x", bytes(8), frame, compress(LZ4, b"other")):
        assert first_lz4_frame(memoryview(frame + behind)) == frame
    # An empty block that is stored ends a frame, too.
    assert first_lz4_frame(memoryview(frame[:-4] + b"\0\0\0\x80" + frame)) == frame
    for other in (b"", b"x", frame[:-1], frame[1:], b"\x04\x22\x4d\x18\x61" + frame[5:]):
        assert first_lz4_frame(memoryview(other)) == other


def test_frames_of_zstd_end_where_the_library_says() -> None:
    chance = random.Random(1)
    skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
    for size in (0, 1, 255, 256, 70_000, 400_000):
        for body in (bytes(size), chance.randbytes(size)):
            for checked in (False, True):
                for sized in (False, True):
                    frame = zstandard.ZstdCompressor(
                        write_checksum=checked, write_content_size=sized
                    ).compress(body)
                    ends = [zstd_frame_end(frame + b"x", 0), zstd_frame_end(skipped + frame, 11)]
                    assert ends == [len(frame), 11 + len(frame)]
                    assert zstd_frame_end(skipped, 0) == 11


def test_an_incomplete_frame_of_zstd_behind_others_is_left_out() -> None:
    frame = zstandard.compress(b"value")
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    for last in (frame, skipped):
        for size in range(len(last)):
            assert whole_zstd_frames(memoryview(frame + last[:size])) == frame
        assert whole_zstd_frames(memoryview(frame + last)) == frame + last
    for other in (b"", b"x", frame[:-1], frame + b"x", frame + bytes(9)):
        assert whole_zstd_frames(memoryview(other)) == other
