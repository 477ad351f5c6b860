"""When functions are compiled, and where compiled code is copied."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numba import njit

from spark_groups.records.compiling import copy_bytes, load_64
from spark_groups.records.decoding import decode_batches, offset_behind
from spark_groups.records.layout import ABORTED, new_columns, new_cursor
from workshop.parts.decoding import compiled_outcome
from workshop.parts.encoding import plain


@njit
def copied(target, target_at, source, source_at, size):
    copy_bytes(target, target_at, source, source_at, size)


@njit
def loaded(octets, index):
    return load_64(octets, index)


@pytest.mark.parametrize("size", [0, 1, 8, 15, 16, 17, 100])
@pytest.mark.parametrize("room", [0, 1, 16, 40])
def test_bytes_are_copied_and_nothing_is_written_behind_the_target(size: int, room: int) -> None:
    source = np.frombuffer(random.Random(1).randbytes(3 + size + room), np.uint8)
    memory = np.full(5 + size + room + 64, 0xEE, np.uint8)
    target = memory[: 5 + size + room]
    copied(target, 5, source, 3, size)
    assert target[5 : 5 + size].tobytes() == source[3 : 3 + size].tobytes()
    assert target[:5].tobytes() == b"\xee" * 5
    assert memory[len(target) :].tobytes() == b"\xee" * 64


def test_eight_bytes_are_one_little_endian_number() -> None:
    octets = np.frombuffer(bytes(range(20)), np.uint8)
    for index in range(13):
        assert loaded(octets, index) == int.from_bytes(
            octets[index : index + 8].tobytes(), "little"
        )


def test_entry_points_are_compiled_once_and_take_nothing_else() -> None:
    for response in (plain(0, [b"a"]).encode(), bytearray(plain(0, [b"a"]).encode()), b""):
        assert not compiled_outcome(response).is_wrong
    assert len(decode_batches.signatures) == 1
    assert len(offset_behind.signatures) == 1
    octets, columns = np.zeros(9, np.int32), new_columns(1, 1)
    with pytest.raises(TypeError):
        decode_batches(octets, octets, new_cursor(), np.zeros(0, ABORTED), columns)
    assert len(decode_batches.signatures) == 1
