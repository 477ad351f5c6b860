"""Series drawn from a seed: those that only vary pass, those with a leak fail."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from workshop.benchmarks.trends import Kind, Sample, Verdict, trend

EVERY_S = 5.0
SEEDS = range(20)
Value = Callable[[float, random.Random], float]


def series(value: Value, minutes: float, seed: int) -> list[Sample]:
    """Return a sample every five seconds."""
    chance = random.Random(seed)
    times = [EVERY_S * number for number in range(int(minutes * 60 / EVERY_S))]
    return [(at_s, value(at_s, chance)) for at_s in times]


def level(at_s: float, chance: random.Random) -> float:
    """200 MB with noise."""
    return 200 + chance.gauss(0, 3)


def warmed_up(at_s: float, chance: random.Random) -> float:
    """It rises by 80 MB at the beginning of the run, then stays."""
    return level(at_s, chance) + min(80.0, at_s * 0.7)


def sawtooth(at_s: float, chance: random.Random) -> float:
    """A heap that is collected every 90 s."""
    return level(at_s, chance) + (at_s % 90)


def outliers(at_s: float, chance: random.Random) -> float:
    """A twentieth of the samples is 150 MB higher."""
    return level(at_s, chance) + 150 * (chance.random() < 0.05)


def leak(at_s: float, chance: random.Random) -> float:
    """1 MB a minute."""
    return level(at_s, chance) + at_s / 60


def leaking_sawtooth(at_s: float, chance: random.Random) -> float:
    """1 MB a minute below a heap that is collected."""
    return sawtooth(at_s, chance) + at_s / 60


@pytest.mark.parametrize("minutes", [10, 60])
@pytest.mark.parametrize("value", [level, warmed_up, sawtooth, outliers])
def test_memory_that_varies_is_steady(value: Value, minutes: int) -> None:
    for seed in SEEDS:
        found = trend("memory", Kind.MEMORY, series(value, minutes, seed))
        assert found.verdict is Verdict.STEADY, (seed, found)


@pytest.mark.parametrize(("value", "minutes"), [(leak, 20), (leak, 60), (leaking_sawtooth, 60)])
def test_a_leak_of_a_megabyte_a_minute_grows(value: Value, minutes: int) -> None:
    for seed in SEEDS:
        found = trend("memory", Kind.MEMORY, series(value, minutes, seed))
        assert found.verdict is Verdict.GROWS, (seed, found)
        assert found.rise == pytest.approx(0.7 * minutes, abs=6.0)
        assert found.last > found.first


@pytest.mark.parametrize("kind", [Kind.DESCRIPTORS, Kind.THREADS, Kind.CONNECTIONS])
def test_one_more_with_each_batch_grows(kind: Kind) -> None:
    found = trend("one a batch", kind, series(lambda at_s, _: 60 + at_s // 2, 10, 1))
    assert found.verdict is Verdict.GROWS


@pytest.mark.parametrize("kind", [Kind.DESCRIPTORS, Kind.THREADS, Kind.CONNECTIONS])
def test_counts_that_follow_the_batches_are_steady(kind: Kind) -> None:
    for seed in SEEDS:
        found = trend(
            "counts", kind, series(lambda _, chance: 60 + chance.choice((0, 1, 6)), 60, seed)
        )
        assert found.verdict is Verdict.STEADY, (seed, found)


def test_a_constant_has_no_trend() -> None:
    found = trend("constant", Kind.THREADS, series(lambda *_: 41.0, 10, 1))
    assert (found.rise, found.z, found.verdict) == (0.0, 0.0, Verdict.STEADY)


@pytest.mark.parametrize("samples", [[], [(0.0, 1.0)], [(0.0, 1.0), (5.0, 2.0), (10.0, 3.0)]])
def test_a_few_samples_prove_nothing(samples: list[Sample]) -> None:
    assert trend("short", Kind.MEMORY, samples).verdict is Verdict.TOO_SHORT
