"""Compiled decompression: pyarrow's bytes or a refusal, and never a byte beside its memory."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest

from spark_groups.records import arrow_batches
from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.records.blocks import REFUSED, unpack
from spark_groups.records.codecs import DecompressionError, Decompressor
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import RangeCursor
from workshop.parts.blocks import CHECKED, body_of, forms, frame
from workshop.parts.decoding import TP
from workshop.parts.encoding import GZIP, LZ4, SNAPPY, XERIAL_MAGIC, ZSTD, compress, plain
from workshop.parts.guard import guarded


def unpacked(
    codec: int, compressed: bytes, room_bytes: int, *, at_end: bool = True
) -> bytes | None:
    wire = guarded(np.frombuffer(compressed, np.uint8), at_end=at_end)
    room: Any = guarded(np.zeros(room_bytes, np.uint8), at_end=at_end)
    size = unpack(codec, wire, 0, len(wire), room)
    return None if size == REFUSED else room[:size].tobytes()


@pytest.mark.parametrize("seed", range(30))
def test_a_compressed_body_comes_back_where_it_just_fits(seed: int) -> None:
    chance = random.Random(seed)
    body = body_of(chance)
    for codec, compressed in forms(body):
        for room in (len(body), len(body) + 7, len(body) + 1000):
            assert unpacked(codec, compressed, room) == body
        if body:
            assert unpacked(codec, compressed, len(body) - 1) is None
            assert unpacked(codec, compressed, 0) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_body_is_refused_or_equals_that_of_pyarrow(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for codec, compressed in forms(body_of(chance)[:3_000]):
        for _ in range(100):
            spoilt = bytearray(compressed[: chance.randint(len(compressed) // 2, len(compressed))])
            if chance.random() < 0.8:
                spoilt = bytearray(compressed)
            for _ in range(chance.choice((0, 1, 1, 3)) if spoilt else 0):
                spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            found = unpacked(codec, bytes(spoilt), 100_000, at_end=chance.random() < 0.7)
            if found is not None:
                accepted += 1
                octets = np.frombuffer(bytes(spoilt), np.uint8)
                assert Decompressor(100_000).decompress(codec, octets).tobytes() == found
    assert accepted


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [
        (LZ4, b""),
        (LZ4, frame(b"checked", CHECKED)[:-1]),
        (SNAPPY, b""),
        (SNAPPY, b"\xff" * 6),
        (SNAPPY, XERIAL_MAGIC + bytes(8) + 9 * (struct.pack(">i", 1) + b"\0")),
        (GZIP, compress(GZIP, b"x")),
        (ZSTD, compress(ZSTD, b"x")),
        (0, b"x"),
    ],
)
def test_unusual_bytes_are_left_to_others(codec: int, compressed: bytes) -> None:
    assert unpacked(codec, compressed, 1000) is None


@pytest.mark.parametrize("codec", [LZ4, SNAPPY])
def test_only_the_first_batches_of_a_size_leave_compiled_code(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    decompress = Decompressor.decompress

    def counted(self: Decompressor, codec: int, compressed: Any) -> Any:
        calls.append(codec)
        return decompress(self, codec, compressed)

    monkeypatch.setattr(arrow_batches.Decompressor, "decompress", counted)
    values = [b"%05d" % index for index in range(3_000)]
    response = b"".join(
        each.encode()
        for each in (_compressed(codec, offset, values) for offset in (0, 3_000, 6_000))
    )
    decoder = RecordDecoder(ROW_SCHEMA)
    rows = list(decoder.decode(response, RangeCursor(TP, 0, 9_000)))
    assert not rows
    batch = decoder.take()
    assert batch is not None
    assert batch["value"].to_pylist() == 3 * values
    assert calls == [codec]


@pytest.mark.parametrize("codec", [LZ4, SNAPPY, ZSTD])
def test_a_batch_that_exceeds_the_limit_by_one_byte_is_refused_by_a_warm_decoder(
    codec: int,
) -> None:
    body = bytes(100_000)
    decompressor = Decompressor(len(body) - 1)
    small = np.frombuffer(compress(codec, body[:-1]), np.uint8)
    assert len(decompressor.decompress(codec, small)) == len(body) - 1
    assert len(decompressor.body) == len(body) - 1
    assert unpack(codec, small, 0, len(small), decompressor.body) in {len(body) - 1, REFUSED}
    large = np.frombuffer(compress(codec, body), np.uint8)
    assert unpack(codec, large, 0, len(large), decompressor.body) == REFUSED
    with pytest.raises(DecompressionError, match="exceeds 99999 bytes"):
        decompressor.decompress(codec, large)


def _compressed(codec: int, offset: int, values: list[bytes]) -> Any:
    from dataclasses import replace

    return replace(plain(offset, values), codec=codec)
