"""Memory for frames: given again, grown up to what is kept, never kept beyond it."""

from __future__ import annotations

from spark_groups.wire.frame_buffer import FrameBuffer


def test_room_is_given_again() -> None:
    buffer = FrameBuffer(100)
    first = buffer.room(40)
    first[:] = b"x" * 40
    assert bytes(buffer.room(10)) == b"x" * 10
    assert len(first) == 40


def test_room_grows_and_a_view_that_is_out_stays_what_it_was() -> None:
    buffer = FrameBuffer(100)
    small = buffer.room(30)
    small[:] = b"s" * 30
    buffer.room(31)[:] = b"l" * 31
    assert bytes(small) == b"s" * 30
    # It grew by more than was asked for, but not beyond what is kept.
    assert len(buffer._memory) == 60
    buffer.room(61)
    assert len(buffer._memory) == 100


def test_a_larger_frame_has_memory_of_its_own() -> None:
    buffer = FrameBuffer(100)
    buffer.room(100)
    assert len(buffer.room(1000)) == 1000
    assert len(buffer._memory) == 0
    assert len(buffer.room(5)) == 5
