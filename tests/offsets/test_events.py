"""What events can tell besides their fields."""

from __future__ import annotations

import pytest

from spark_groups.offsets.events import AvailableNowUnsettled, WithheldRange


@pytest.mark.parametrize(
    ("committed_offset", "log_end_offset", "rows"),
    [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)],
)
def test_rows_that_wait_are_known_with_both_ends(
    committed_offset: int | None, log_end_offset: int | None, rows: int | None
) -> None:
    assert WithheldRange("orders", 1, committed_offset, log_end_offset).rows == rows


@pytest.mark.parametrize(
    ("waiting", "unresolved", "is_told", "is_harmless"),
    [
        ((10,), 0, True, True),
        ((10, 11), 0, True, False),
        ((10, None), 0, True, False),
        ((10,), 1, True, False),
        ((10,), 0, False, False),
        ((), 0, True, False),
    ],
)
def test_only_what_is_known_to_be_empty_is_harmless(
    waiting: tuple[int | None, ...], unresolved: int, is_told: bool, is_harmless: bool
) -> None:
    event = AvailableNowUnsettled(
        1.0,
        waited_s=10.0,
        withheld=tuple(WithheldRange("orders", 0, 10, end) for end in waiting),
        unresolved=unresolved,
        holders=(),
        unready=(),
        is_told=is_told,
    )
    assert event.is_harmless is is_harmless
