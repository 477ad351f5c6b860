"""Bugs planted in production code are found by drawn schedules, as `spark-groups simulate` draws.

Each is one that a promise rests on alone: nothing else in the client hides it for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from group_lab.commands.simulation import Run, play
from group_lab.coordinator.profile import PROFILES
from group_lab.sim.checkers.registry import CHECKERS
from group_lab.sim.swarm import GroupProtocol
from lab.tests.sim.drawn_mutations_setup import DRAWN, SCHEDULES_MAX, Patch, Planted
from lab.tests.sim.mutations_setup import PLANTED


def drawn_runs(seed: int, protocols: tuple[GroupProtocol, ...]) -> Iterator[Run]:
    """Yield the schedules that `spark-groups simulate --schedules` plays from a seed on."""
    return (Run(each, name, protocols=protocols) for each in count(seed) for name in PROFILES)


@pytest.mark.parametrize("planted", DRAWN, ids=lambda each: each.plant.__name__)
def test_planted_bug_is_found_by_a_drawn_schedule(planted: Planted, monkeypatch: Patch) -> None:
    run = Run(planted.seed, planted.profile, protocols=planted.protocols)
    assert play(run) is None, "the same run is clean without the bug"
    planted.plant(monkeypatch)
    broken = play(run)
    assert broken is not None
    assert broken.promise == planted.promise


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [400_001, 500_001])
@pytest.mark.parametrize("planted", DRAWN, ids=lambda each: each.plant.__name__)
def test_planted_bug_is_found_from_any_seed(
    planted: Planted, seed: int, monkeypatch: Patch
) -> None:
    planted.plant(monkeypatch)
    # The bug may break other promises first: which ones depends on the schedules.
    for number, run in enumerate(drawn_runs(seed, planted.protocols), start=1):
        broken = play(run)
        if broken is not None:
            print(f"{planted.plant.__name__}: {broken.promise}, {broken.run}, schedule {number}")
            if broken.promise == planted.promise:
                return
        assert number < SCHEDULES_MAX, f"{planted.promise} is not broken"


def test_every_checker_has_its_bug() -> None:
    promises = [each.promise for each in PLANTED]
    assert len(promises) == len(set(promises))
    assert len({*promises, *(each.promise for each in DRAWN)}) == len(CHECKERS)
