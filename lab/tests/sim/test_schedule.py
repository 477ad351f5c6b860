"""Things happen in the order of their instants; clocks of members never wake early."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from group_lab.sim.chance import Chance
from group_lab.sim.schedule import EXACT, Clock, Schedule


def test_everything_happens_in_order_and_up_to_the_end_only() -> None:
    schedule, seen = Schedule(), []
    for when, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.5, "later")):
        schedule.at(when, partial(seen.append, name))
    schedule.run_until(3.0)
    assert (seen, schedule.now, schedule.steps) == (["a", "b", "c"], 3.0, 3)
    schedule.run_until(3.5)
    assert seen[-1] == "later"


def test_an_event_of_the_past_happens_next_and_one_may_lead_to_another() -> None:
    schedule, seen = Schedule(), []

    def act() -> None:
        seen.append(schedule.now)
        if len(seen) < 3:
            schedule.after(1.0, act)

    schedule.run_until(5.0)
    schedule.at(1.0, act)
    schedule.run_until(10.0)
    assert seen == [5.0, 6.0, 7.0]


def test_so_many_things_happen_and_no_more() -> None:
    schedule, seen = Schedule(), []
    for when in (3.0, 1.0, 2.0):
        schedule.at(when, partial(seen.append, when))
    schedule.run_steps(2)
    assert (seen, schedule.now) == ([1.0, 2.0], 2.0)
    schedule.run_steps(2)
    assert (seen, schedule.steps) == ([1.0, 2.0, 3.0], 3)


def test_exact_clock_shows_the_time_of_the_run() -> None:
    assert EXACT.local(0.1 + 0.2) == 0.1 + 0.2 == EXACT.instant(0.1 + 0.2)


@pytest.mark.parametrize("rate", [0.99, 1.0, 1.01])
def test_a_wake_up_comes_when_the_clock_shows_it_and_not_before(rate: float) -> None:
    clock = Clock(123_456.789, rate)
    for tenth in range(1, 500):
        wake_at = clock.local(tenth / 10) + 0.3
        now = clock.instant(wake_at)
        assert wake_at <= clock.local(now) < wake_at + 1e-4


def drawn(chance: Chance) -> tuple[float, int, float, str]:
    return chance.random(), chance.randint(1, 6), chance.uniform(2.0, 3.0), chance.choice("abc")


def test_a_seeded_generator_of_the_library_will_do_and_repeats_itself() -> None:
    first = drawn(Random(7))
    assert first == drawn(Random(7)) != drawn(Random(8))
    assert 0 <= first[0] < 1 <= first[1] <= 6
    assert 2.0 <= first[2] <= 3.0
    assert first[3] in "abc"
