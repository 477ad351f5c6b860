"""Figures of readings: ratios within a repeat, goals met, missed and not measured."""

from __future__ import annotations

import pytest

from workshop.benchmarks.figures import (
    SMALL,
    SMALL_LZ4,
    Goal,
    Spread,
    above,
    cpu_s,
    goals,
    latencies,
    percentile,
    rate,
    ratios,
)
from workshop.benchmarks.readers import FAST, JVM_BEST, JVM_DEFAULT, JVM_TUNED, NOWHERE, RANGES
from workshop.tests.benchmarks.figures_setup import READINGS, reading


def test_a_spread_is_median_least_and_most() -> None:
    assert Spread.of([3.0, 1.0, 2.5]) == Spread(2.5, 1.0, 3.0)
    assert Spread.of([]) is None


def test_rates_and_cpu_are_of_a_million_rows() -> None:
    assert rate(READINGS[0]) == 2.0
    assert cpu_s(READINGS[0], "jvm", "python") == 0.75
    assert cpu_s(READINGS[0], "broker") == 0.125


def test_a_ratio_is_of_the_same_repeat() -> None:
    assert ratios(READINGS, SMALL, FAST, JVM_BEST, rate) == Spread(1.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("topic", "reader", "peer"),
    [
        ("another", FAST, JVM_BEST),
        (SMALL, FAST, JVM_DEFAULT),
        (SMALL, JVM_DEFAULT, JVM_BEST),
    ],
)
def test_there_is_no_ratio_to_an_unmeasured_rate(topic: str, reader: str, peer: str) -> None:
    assert ratios(READINGS, topic, reader, peer, rate) is None


def test_what_a_source_is_above_another_is_of_the_medians_of_a_repeat() -> None:
    times = [
        {"source": source, "repeat": repeat, "partitions": 1, "trigger_ms": each}
        for source, repeat, found in (
            ("base", 0, (100, 110, 400)),
            ("one", 0, (150, 130, 170)),
            ("base", 1, (100,)),
            ("one", 1, (120,)),
            ("one", 2, (900,)),
        )
        for each in found
    ]
    assert above(times, "one", "base", "trigger_ms", partitions=1) == Spread(30, 20, 40)
    assert above(times, "one", "base", "trigger_ms", partitions=2) is None


def test_percentiles_are_numbers_that_were_measured() -> None:
    numbers = list(range(1, 101))
    assert [percentile(numbers, rank) for rank in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7.0], 50) == 7.0
    readings = [{"source": "one", "latency_ms": each} for each in ([3.0, 1.0, 2.0], [5.0], [])]
    assert latencies(readings, "one", 50) == Spread(3.5, 2.0, 5.0)


@pytest.mark.parametrize(
    ("is_at_least", "measured", "verdict"),
    [
        (True, 2.0, "met"),
        (True, 1.99, "**missed**"),
        (False, 2.0, "met"),
        (False, 2.01, "**missed**"),
        (True, None, "not measured"),
    ],
)
def test_the_median_says_whether_a_goal_is_met(
    is_at_least: bool, measured: float | None, verdict: str
) -> None:
    spread = None if measured is None else Spread(measured, 0.0, 9.0)
    assert Goal("speed", 2.0, is_at_least, "x", spread).verdict == verdict


def test_only_measured_goals_have_a_verdict() -> None:
    bound = [reading(NOWHERE, repeat, 0.9) for repeat in (1, 2, 3)]
    parts = {"throughput": {"readings": [*READINGS, *bound]}}
    of_throughput = {each.what: each for each in goals(parts)}
    assert of_throughput[f"{FAST}, {SMALL}, to {NOWHERE}"].verdict == "met"
    assert of_throughput[f"{FAST}, {SMALL_LZ4}, to {NOWHERE}"].verdict == "not measured"
    cpu = "CPU of all but the broker"
    assert of_throughput[f"{cpu}, {FAST}, {SMALL}, to {JVM_BEST}"].verdict == "**missed**"
    assert of_throughput[f"{cpu}, {RANGES}, {SMALL}, to {JVM_TUNED}"].verdict == "not measured"
    assert {each.verdict for each in goals({})} == {"not measured"}
