"""The model says what a broker of its version says, to requests that are drawn from a seed.

`CONFORMANCE_SEED=17 CONFORMANCE_STEPS=400` plays one script only; a difference says which.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from spark_groups.coordinator.profile import PROFILES
from tests.conformance.pair import Pair
from tests.scenarios.broker_world import BrokerWorld

IN_EVERY_RUN = ("4.3.1", "4.4.0")
ON_REQUEST = ("4.0.0", "4.1.2", "4.2.1")
SEEDS, SEEDS_ON_REQUEST = range(5), range(5, 25)
STEPS = 250
"""Of one script; five of them are more than a thousand."""


def scripts() -> list[object]:
    """Every seed on every version; those on one version run in one worker, on one broker."""
    if "CONFORMANCE_SEED" in os.environ:
        seeds = dict.fromkeys((int(os.environ["CONFORMANCE_SEED"]),), False)
    else:
        seeds = dict.fromkeys(SEEDS, False) | dict.fromkeys(SEEDS_ON_REQUEST, True)
    return [
        pytest.param(seed, version, marks=_marks(version, is_extra), id=f"{version}-seed-{seed}")
        for version in (*IN_EVERY_RUN, *ON_REQUEST)
        for seed, is_extra in seeds.items()
    ]


def _marks(version: str, is_extra: bool) -> list[pytest.MarkDecorator]:
    group = pytest.mark.xdist_group(f"scenarios on Kafka {version}")
    marks = [pytest.mark.broker, pytest.mark.long, group]
    if is_extra or version in ON_REQUEST:
        marks += [pytest.mark.all_versions, pytest.mark.slow]
    return marks


@pytest.mark.parametrize(("seed", "version"), scripts())
def test_model_answers_as_the_broker(
    seed: int, version: str, broker_world: Callable[[str], BrokerWorld]
) -> None:
    steps = int(os.environ.get("CONFORMANCE_STEPS", STEPS))
    repeat = (
        f"CONFORMANCE_SEED={seed} CONFORMANCE_STEPS={steps}"
        f" .venv/bin/python -m pytest tests/conformance -k {version}"
    )
    world = broker_world(version)
    profile = PROFILES["kafka-" + version.rpartition(".")[0]]
    try:
        pair = Pair(world, profile, seed, repeat)
        pair.play(steps)
    finally:
        world.end()
    assert pair.steps >= steps
