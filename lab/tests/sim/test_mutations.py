"""Each checker is shown the bug it is for, planted on purpose, and is the one that catches it."""

from __future__ import annotations

import pytest

from group_lab.commands.simulation import Run, play
from lab.tests.sim.mutations_setup import PLANTED, Planted


def broken_promises(planted: Planted) -> set[str]:
    runs = [Run(seed, planted.profile, planted.swarm) for seed in range(planted.seeds)]
    return {broken.promise for broken in map(play, runs) if broken}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.plant.__name__)
def test_planted_bug_is_caught_by_the_checker_it_is_for(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broken_promises(planted) == set(), "the same runs are clean without the bug"
    planted.plant(monkeypatch)
    assert broken_promises(planted) == {planted.promise}
