"""The model says what a broker of its version says, to requests that are drawn from a seed.

`CONFORMANCE_SEED=17 CONFORMANCE_STEPS=400` plays one script only; a difference says which.
Each seed is a script about groups of consumers, and one about groups with members of the classic
protocol. `CONFORMANCE_SEED=17 CONFORMANCE_REQUESTS=10000` plays so many requests on the oldest
version, the usual one and the newest, in scripts from that seed on (`make conformance-hunt`).
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from spark_groups.lab.coordinator.profile import PROFILES
from tests.conformance.classic_pair import ClassicPair
from tests.conformance.pair import Pair
from tests.conformance.tally import PROPERTY, Played
from tests.scenarios.broker_world import StartWorld

IN_EVERY_RUN = ("4.3.1", "4.4.0")
ON_REQUEST = ("4.0.0", "4.1.2", "4.2.1")
HUNTED = ("4.0.0", "4.3.1", "4.4.0")
SEEDS, SEEDS_ON_REQUEST = range(4), range(5, 25)
FRESH = -1
"""In the place of a seed: one that is drawn when the script begins."""
KINDS = {Pair: "consumer", ClassicPair: "classic"}
STEPS = 250
"""Of one script; five of them are more than a thousand."""


def scripts() -> Iterator[object]:
    """Every seed on every version; those on one version run in one worker, on one broker."""
    for pair in (Pair, ClassicPair):
        yield from _scripts(pair)


def _scripts(pair: type[Pair]) -> Iterator[object]:
    if "CONFORMANCE_REQUESTS" in os.environ:
        first = int(os.environ["CONFORMANCE_SEED"])
        count = math.ceil(int(os.environ["CONFORMANCE_REQUESTS"]) / STEPS)
        for version in HUNTED:
            for seed in range(first, first + count):
                yield _script(pair, seed, version)
        return
    for version in (*IN_EVERY_RUN, *ON_REQUEST):
        if "CONFORMANCE_SEED" in os.environ:
            yield _script(pair, int(os.environ["CONFORMANCE_SEED"]), version)
            continue
        for seed in (*SEEDS, *SEEDS_ON_REQUEST):
            yield _script(pair, seed, version, is_extra=seed in SEEDS_ON_REQUEST)
        yield _script(pair, FRESH, version)


def _script(pair: type[Pair], seed: int, version: str, *, is_extra: bool = False) -> object:
    group = pytest.mark.xdist_group(f"scenarios on Kafka {version}")
    marks = [pytest.mark.broker, pytest.mark.long, group]
    if is_extra or version in ON_REQUEST:
        marks += [pytest.mark.all_versions, pytest.mark.slow]
    name = "fresh" if seed == FRESH else f"{seed}"
    return pytest.param(pair, seed, version, marks=marks, id=f"{KINDS[pair]}-{version}-seed-{name}")


@pytest.mark.parametrize(("kind", "seed", "version"), scripts())
def test_model_answers_as_the_broker(
    kind: type[Pair],
    seed: int,
    version: str,
    broker_world: StartWorld,
    record_property: Callable[[str, object], None],
) -> None:
    if seed == FRESH:
        seed = random.SystemRandom().randrange(1_000_000)
    steps = int(os.environ.get("CONFORMANCE_STEPS", STEPS))
    repeat = (
        f"CONFORMANCE_SEED={seed} CONFORMANCE_STEPS={steps}"
        f" .venv/bin/python -m pytest tests/conformance -k {KINDS[kind]}-{version}"
    )
    # Pytest shows this beside any failure.
    print(f"seed {seed}, to play it again: {repeat}")
    world = broker_world(version)
    profile = PROFILES["kafka-" + version.rpartition(".")[0]]
    try:
        pair = kind(world, profile, seed, repeat)
        pair.play(steps)
    finally:
        world.end()
    played = Played(version, KINDS[kind], seed, pair.compared, len(pair.given_up))
    record_property(PROPERTY, asdict(played))
