"""Numbers that are drawn anew as long as they may be why a step differs."""

from __future__ import annotations

import random

import pytest

from spark_groups.lab.sim.transcript_draws import Draw, Redrawn


def draw(*differing: tuple[int, int], drawn: int = 6) -> Draw:
    """Return a draw that differs at some places, each after so many numbers."""
    made = Draw(Redrawn(random.Random(0)))
    for place, before in (*differing, (-1, drawn)):
        while len(made.numbers.drawn) < before:
            made.numbers.getrandbits(64)
        if place >= 0:
            made.note_difference(place)
    return made


def test_kept_numbers_come_back() -> None:
    numbers = Redrawn(random.Random(0), kept=(7, 8, 9), anew=frozenset({1}))
    fresh = random.Random(0)
    seen = [numbers.getrandbits(64) for _ in range(4)]
    assert seen == [7, fresh.getrandbits(64), 9, fresh.getrandbits(64)]
    assert numbers.drawn == seen


@pytest.mark.parametrize(
    ("mine", "its", "is_behind"),
    [
        ([3], [5], True),
        ([5], [3], False),
        ([3, 4], [3, 9], True),
        ([3, 9], [3, 4], False),
        ([3, 4], [3], True),
        ([3], [3, 4], False),
        ([3], [3], False),
        ([], [3], False),
        ([0], [], True),
    ],
)
def test_who_agrees_longer_is_ahead(mine: list[int], its: list[int], is_behind: bool) -> None:
    first, second = (draw(*((place, 0) for place in places)) for places in (mine, its))
    assert first.is_behind(second) is is_behind


def test_only_what_was_drawn_before_a_difference_is_drawn_anew() -> None:
    before = draw((4, 3))
    changed, all_anew = set(), 0
    for seed in range(200):
        redrawn = before.changed(random.Random(seed)).numbers
        all_anew += not redrawn.kept
        if redrawn.kept:
            assert redrawn.kept == before.numbers.drawn
            assert 1 <= len(redrawn.anew) <= 2
            changed |= redrawn.anew
    assert changed == {0, 1, 2}
    assert 0 < all_anew < 50


def test_a_difference_before_anything_was_drawn_stays() -> None:
    assert not draw((0, 0)).can_be_better
    assert draw((0, 0), (1, 2)).can_be_better
    assert not draw().can_be_better
