"""A record says where it belongs, and a byte that changed is noticed."""

from __future__ import annotations

import pytest

from workshop.chaos.systems.record import is_right, record_value


@pytest.mark.parametrize("filling", ["", "beef" * 50])
def test_record_is_right_where_it_was_written(filling: str) -> None:
    assert is_right(record_value("ants", 3, 17, filling), "ants", 3, 17)


@pytest.mark.parametrize("place", [("bees", 3, 17), ("ants", 4, 17), ("ants", 3, 18)])
def test_record_is_wrong_anywhere_else(place: tuple[str, int, int]) -> None:
    assert not is_right(record_value("ants", 3, 17), *place)


def test_any_changed_byte_is_noticed() -> None:
    value = record_value("ants", 3, 17, "beef")
    for at, byte in enumerate(value):
        changed = value[:at] + bytes([byte ^ 1]) + value[at + 1 :]
        assert not is_right(changed, "ants", 3, 17)
    assert not is_right(value[:-1], "ants", 3, 17)
    assert not is_right(b"", "ants", 3, 17)
    assert not is_right(None, "ants", 3, 17)
