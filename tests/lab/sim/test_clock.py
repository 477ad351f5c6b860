"""Clocks of members: exact ones to the bit, others never wake too early."""

from __future__ import annotations

import pytest

from spark_groups.lab.sim.clock import EXACT, Clock


def test_exact_clock_shows_the_time_of_the_run() -> None:
    assert EXACT.local(0.1 + 0.2) == 0.1 + 0.2 == EXACT.instant(0.1 + 0.2)


@pytest.mark.parametrize("rate", [0.99, 1.0, 1.01])
def test_a_wake_up_comes_when_the_clock_shows_it_and_not_before(rate: float) -> None:
    clock = Clock(123_456.789, rate)
    for tenth in range(1, 500):
        wake_at = clock.local(tenth / 10) + 0.3
        now = clock.instant(wake_at)
        assert wake_at <= clock.local(now) < wake_at + 1e-4
