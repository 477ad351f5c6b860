"""The names of KIP-848's coordinator metrics, and what they count."""

from __future__ import annotations

from math import inf

import pytest

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.metrics import PREFIX, Sensors, mean_metrics, metrics
from spark_groups.lab.coordinator.records import Record
from tests.lab.coordinator.driving import group_of

TIMES = ("max", "p50", "p99", "p999")
NAMES = (
    *(f"group-count,protocol={each}" for each in ("consumer", "generic")),
    *(f"partition-count,state={each}" for each in ("loading", "active", "failed")),
    "event-queue-size",
    *(
        f"consumer-group-count,state={each}"
        for each in ("empty", "assigning", "reconciling", "stable", "dead")
    ),
    "consumer-group-rebalance-rate",
    "consumer-group-rebalance-count",
    "partition-load-time-max",
    "partition-load-time-avg",
    "thread-idle-ratio-avg",
    *(f"event-queue-time-ms-{each}" for each in TIMES),
    *(f"event-processing-time-ms-{each}" for each in TIMES),
    *(f"event-purgatory-time-ms-{each}" for each in TIMES),
    *(f"batch-flush-time-ms-{each}" for each in TIMES),
)
"""Every name in the KIP's "Broker Metrics"."""
LEFT_OUT = (
    "event-queue",
    "event-processing",
    "batch-flush",
    "thread-idle",
    "partition-count,state=f",
)
"""How those begin that virtual time has no values for."""


def test_names_are_those_of_the_kip() -> None:
    named = metrics(Sensors(0.0), (), 0.0, is_loading=False)
    expected = (PREFIX + each for each in NAMES if not each.startswith(LEFT_OUT))
    assert sorted(named) == sorted(expected)


def test_groups_and_partitions_are_counted_by_state() -> None:
    groups = (
        group_of("e", Record(r.GroupMetadataKey("e"), r.GroupMetadataValue(1))),
        group_of(
            "a",
            Record(r.GroupMetadataKey("a"), r.GroupMetadataValue(1)),
            Record(r.MemberMetadataKey("a", "m"), r.MemberMetadataValue()),
        ),
        group_of("o", Record(r.OffsetCommitKey("o", "t", 0), r.OffsetCommitValue(1))),
    )
    named = metrics(Sensors(0.0), groups, 0.0, is_loading=True)
    assert {name.removeprefix(PREFIX): value for name, value in named.items() if value} == {
        "group-count,protocol=consumer": 2,
        "group-count,protocol=generic": 1,
        "consumer-group-count,state=empty": 1,
        "consumer-group-count,state=assigning": 1,
        "partition-count,state=loading": 1,
    }


def test_times_are_of_the_window_and_in_milliseconds() -> None:
    sensors = Sensors(0.0)
    sensors.purgatory.record(1.0, 5.0)
    for each in range(1, 101):
        sensors.purgatory.record(60.0, each / 1000)
    sensors.load.record(60.0, 0.3)
    sensors.load.record(60.0, 0.1)
    before = metrics(sensors, (), 60.5, is_loading=False)
    assert before[PREFIX + "event-purgatory-time-ms-max"] == 5000
    named = metrics(sensors, (), 61.0, is_loading=False)
    assert named[PREFIX + "event-purgatory-time-ms-max"] == 100
    assert named[PREFIX + "event-purgatory-time-ms-p50"] == 50
    assert named[PREFIX + "event-purgatory-time-ms-p99"] == 99
    assert named[PREFIX + "event-purgatory-time-ms-p999"] == 100
    assert named[PREFIX + "partition-load-time-max"] == 300
    assert named[PREFIX + "partition-load-time-avg"] == pytest.approx(200)


@pytest.mark.parametrize(("window_s", "rate"), [(60.0, 1 / 60), (inf, 2 / 91)])
def test_rebalances_are_counted_since_the_start_and_their_rate_is_of_the_window(
    window_s: float, rate: float
) -> None:
    sensors = Sensors(10.0, window_s)
    sensors.rebalanced(10.0)
    sensors.rebalanced(100.0)
    named = metrics(sensors, (), 101.0, is_loading=False)
    assert named[PREFIX + "consumer-group-rebalance-count"] == 2
    assert named[PREFIX + "consumer-group-rebalance-rate"] == pytest.approx(rate)


def test_several_runs_have_the_maximum_of_maxima_and_means_of_the_rest() -> None:
    runs = [{"time-max": 1.0, "time-avg": 1.0}, {"time-max": 5.0, "time-avg": 2.0}]
    assert mean_metrics(runs) == {"time-max": 5.0, "time-avg": 1.5}
