"""The names of KIP-848's coordinator metrics, and what they count."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.metrics import PartitionState, Sensors, metrics
from spark_groups.lab.coordinator.records import Record
from tests.lab.coordinator.driving import group_of

PREFIX = "kafka.server:type=group-coordinator-metrics,name="
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


def test_the_names_are_those_of_the_kip() -> None:
    named = metrics(Sensors(0.0), (), (), 0, 0.0)
    assert sorted(named) == sorted(PREFIX + each for each in NAMES)


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
    states = (PartitionState.ACTIVE, PartitionState.ACTIVE, PartitionState.LOADING)
    named = metrics(Sensors(0.0), groups, states, 4, 0.0)
    assert {name.removeprefix(PREFIX): value for name, value in named.items() if value} == {
        "group-count,protocol=consumer": 2,
        "group-count,protocol=generic": 1,
        "consumer-group-count,state=empty": 1,
        "consumer-group-count,state=assigning": 1,
        "partition-count,state=active": 2,
        "partition-count,state=loading": 1,
        "event-queue-size": 4,
        "thread-idle-ratio-avg": 1.0,
    }


def test_times_are_of_the_window_and_in_milliseconds() -> None:
    sensors = Sensors(0.0)
    sensors.queue.record(1.0, 5.0)
    for each in range(1, 101):
        sensors.queue.record(60.0, each / 1000)
    sensors.load.record(60.0, 0.3)
    sensors.load.record(60.0, 0.1)
    sensors.processing.record(60.0, 6.0)
    before = metrics(sensors, (), (), 0, 60.5)
    assert before[PREFIX + "event-queue-time-ms-max"] == 5000
    named = metrics(sensors, (), (), 0, 61.0)
    assert named[PREFIX + "event-queue-time-ms-max"] == 100
    assert named[PREFIX + "event-queue-time-ms-p50"] == 50
    assert named[PREFIX + "event-queue-time-ms-p99"] == 99
    assert named[PREFIX + "event-queue-time-ms-p999"] == 100
    assert named[PREFIX + "partition-load-time-max"] == 300
    assert named[PREFIX + "partition-load-time-avg"] == pytest.approx(200)
    assert named[PREFIX + "thread-idle-ratio-avg"] == pytest.approx(0.9)


def test_rebalances_are_counted_for_ever_and_their_rate_is_of_late() -> None:
    sensors = Sensors(0.0)
    sensors.rebalanced(10.0)
    sensors.rebalanced(100.0)
    named = metrics(sensors, (), (), 0, 101.0)
    assert named[PREFIX + "consumer-group-rebalance-count"] == 2
    assert named[PREFIX + "consumer-group-rebalance-rate"] == pytest.approx(1 / 60)
