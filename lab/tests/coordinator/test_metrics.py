"""The coordinator's metrics: their names in the KIP and on real brokers, and what they count."""

from __future__ import annotations

from math import inf

import pytest

from group_lab.coordinator import records as r
from group_lab.coordinator.metrics import (
    CLASSIC_PREFIX,
    PREFIX,
    Counted,
    Sensors,
    mean_metrics,
    metrics,
)
from group_lab.coordinator.profile import KAFKA_4_2, KAFKA_4_3, KAFKA_4_4, KIP_848, Profile
from group_lab.coordinator.records import Record
from lab.tests.coordinator.driving import group_of

TIMES = ("max", "p50", "p99", "p999")
IN_THE_KIP = {
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
}
"""Every name in the KIP's "Broker Metrics"."""
MIGRATED = {
    f"{each}-{kind}"
    for each in ("group-completed-rebalance", "offset-commit", "offset-deletion")
    for kind in ("rate", "count")
} | {"offset-expiration-rate", "offset-expiration-count"}
"""Those of classic groups in the same group of metrics, which keep their names."""
GROUPS = (
    group_of("e", Record(r.GroupMetadataKey("e"), r.GroupMetadataValue(1))),
    group_of(
        "a",
        Record(r.GroupMetadataKey("a"), r.GroupMetadataValue(1)),
        Record(r.MemberMetadataKey("a", "m"), r.MemberMetadataValue()),
    ),
    group_of("o", Record(r.OffsetCommitKey("o", "t", 0), r.OffsetCommitValue(1))),
)


def short(named: dict[str, float]) -> dict[str, float]:
    return {name.partition("name=")[2]: value for name, value in named.items()}


def test_names_of_the_profile_of_the_kip_are_those_of_its_text() -> None:
    named = metrics(Sensors(0.0), (), KIP_848, 0.0, is_loading=False)
    new = {name.removeprefix(PREFIX) for name in named if name.startswith(PREFIX)}
    assert new == IN_THE_KIP | MIGRATED
    # The text replaces only NumGroups.
    older = {name.removeprefix(CLASSIC_PREFIX) for name in named} - {*named}
    assert {"NumOffsets", "NumGroupsStable", "NumGroupsPreparingRebalance"} <= older
    assert "NumGroups" not in older


def test_groups_and_partitions_are_counted_by_state() -> None:
    named = short(metrics(Sensors(0.0), GROUPS, KIP_848, 0.0, is_loading=True))
    assert {name: value for name, value in named.items() if value} == {
        "group-count,protocol=consumer": 2,
        "group-count,protocol=generic": 1,
        "consumer-group-count,state=empty": 1,
        "consumer-group-count,state=assigning": 1,
        "partition-count,state=loading": 1,
        "thread-idle-ratio-avg": 1,
        "NumOffsets": 1,
        "NumGroupsEmpty": 1,
    }


def test_the_profiles_of_kafka_have_the_names_of_its_brokers() -> None:
    named = short(metrics(Sensors(0.0), GROUPS, KAFKA_4_4, 0.0, is_loading=False))
    assert {name: value for name, value in named.items() if value} == {
        "group-count,protocol=consumer": 2,
        "group-count,protocol=classic": 1,
        "consumer-group-count,state=Empty": 1,
        "consumer-group-count,state=Assigning": 1,
        "classic-group-count,state=Empty": 1,
        "offset-count": 1,
        "num-partitions,state=active": 1,
        "thread-idle-ratio-avg": 1,
        "NumOffsets": 1,
        "NumGroupsEmpty": 1,
        "NumGroups": 1,
    }
    of_4_3 = short(metrics(Sensors(0.0), GROUPS, KAFKA_4_3, 0.0, is_loading=False))
    assert named.keys() - of_4_3.keys() == {
        "offset-count",
        *(name for name in named if name.startswith("classic-group-count")),
    }


EPOCH = Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(3))
JOINED = Record(r.MemberMetadataKey("g", "m"), r.MemberMetadataValue())
GONE = Record(r.MemberMetadataKey("g", "m"), None)
CONVERTED = Record(r.ClassicGroupMetadataKey("g"), None)
COMMITTED = Record(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(1))


@pytest.mark.parametrize(
    ("records", "profile", "rebalances", "commits"),
    [
        ((EPOCH, JOINED), KAFKA_4_2, 1, 0),
        ((EPOCH,), KAFKA_4_2, 1, 0),
        ((EPOCH, GONE), KAFKA_4_2, 0, 0),
        ((EPOCH, GONE), KIP_848, 1, 0),
        ((GONE, JOINED, EPOCH), KAFKA_4_2, 1, 0),
        ((CONVERTED, EPOCH), KAFKA_4_2, 0, 0),
        ((CONVERTED, EPOCH, JOINED, EPOCH), KAFKA_4_2, 1, 0),
        ((CONVERTED,), KAFKA_4_2, 0, 0),
        ((COMMITTED, COMMITTED), KAFKA_4_2, 0, 2),
    ],
)
def test_a_batch_counts_as_rebalances_and_commits(
    records: tuple[Record, ...], profile: Profile, rebalances: int, commits: int
) -> None:
    sensors = Sensors(0.0)
    sensors.replicated(records, profile, 1.0)
    named = short(metrics(sensors, (), profile, 1.0, is_loading=False))
    assert named["consumer-group-rebalance-count"] == rebalances
    assert named["offset-commit-count"] == commits


def test_times_are_of_the_window_and_in_milliseconds() -> None:
    sensors = Sensors(0.0)
    sensors.purgatory.record(1.0, 5.0)
    for each in range(1, 101):
        sensors.purgatory.record(60.0, each / 1000)
    sensors.load.record(60.0, 0.3)
    sensors.load.record(60.0, 0.1)
    before = metrics(sensors, (), KAFKA_4_3, 60.5, is_loading=False)
    assert before[PREFIX + "event-purgatory-time-ms-max"] == 5000
    named = metrics(sensors, (), KAFKA_4_3, 61.0, is_loading=False)
    assert named[PREFIX + "event-purgatory-time-ms-max"] == 100
    assert named[PREFIX + "event-purgatory-time-ms-p50"] == 50
    assert named[PREFIX + "event-purgatory-time-ms-p95"] == 95
    assert named[PREFIX + "event-purgatory-time-ms-p99"] == 99
    assert named[PREFIX + "event-purgatory-time-ms-p999"] == 100
    assert named[PREFIX + "partition-load-time-max"] == 300
    assert named[PREFIX + "partition-load-time-avg"] == pytest.approx(200)


@pytest.mark.parametrize(("window_s", "rate"), [(60.0, 1 / 60), (inf, 2 / 91)])
def test_rebalances_are_counted_since_the_start_and_their_rate_is_of_the_window(
    window_s: float, rate: float
) -> None:
    sensors = Sensors(10.0, window_s)
    sensors.count(Counted.CONSUMER_REBALANCES, 10.0)
    sensors.count(Counted.CONSUMER_REBALANCES, 100.0)
    named = metrics(sensors, (), KAFKA_4_3, 101.0, is_loading=False)
    assert named[PREFIX + "consumer-group-rebalance-count"] == 2
    assert named[PREFIX + "consumer-group-rebalance-rate"] == pytest.approx(rate)


def test_several_runs_have_the_maximum_of_maxima_and_means_of_the_rest() -> None:
    runs = [{"time-max": 1.0, "time-avg": 1.0}, {"time-max": 5.0, "time-avg": 2.0}]
    assert mean_metrics(runs) == {"time-max": 5.0, "time-avg": 1.5}
