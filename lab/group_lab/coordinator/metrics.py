"""The coordinator's metrics in virtual time, by the names of Kafka's brokers or of KIP-848.

A coordinator in virtual time handles an event at once and can read every log, so times of events,
their queue and failed partitions are 0, and its thread is always idle.

Source: KIP-848, "Broker Metrics"; GroupCoordinatorMetrics, CoordinatorRuntimeMetricsImpl and
KafkaMetricHistogram of Kafka 4.0 to 4.4; names as Kafka's documentation prints them.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from group_lab.coordinator import records as r
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.group import ConsumerGroup, GroupState
from group_lab.coordinator.profile import Profile

WINDOW_S: Final = 60.0
"""Two samples of 30 s, the default of Kafka's metrics."""
PREFIX: Final = "kafka.server:type=group-coordinator-metrics,name="
CLASSIC_PREFIX: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
"""Of gauges that Kafka has had since before KIP-848."""
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_ONLY_OF_KAFKA: Final = "p95"
_TIMELESS: Final = ("event-queue-time-ms", "event-processing-time-ms", "batch-flush-time-ms")


class Counted(Enum):
    """Events counted since the start and per second; the values begin the names of metrics."""

    CONSUMER_REBALANCES = "consumer-group-rebalance"
    CLASSIC_REBALANCES = "group-completed-rebalance"
    COMMITS = "offset-commit"
    DELETIONS = "offset-deletion"
    EXPIRATIONS = "offset-expiration"


@dataclass(slots=True)
class Sensor:
    """Durations in seconds, or counts, within a window."""

    window_s: float = WINDOW_S
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, now: float, value: float) -> None:
        """Add a duration or count."""
        self._seen.append((now, value))
        self._forget(now)

    def values(self, now: float) -> list[float]:
        """Return what the window has, sorted."""
        self._forget(now)
        return sorted(value for _, value in self._seen)

    def _forget(self, now: float) -> None:
        while self._seen and self._seen[0][0] <= now - self.window_s:
            self._seen.popleft()


class Sensors:
    """Measurements of one coordinator.

    Args:
        started_at: Start of the measurements, in seconds.
        window_s: Window of maxima, quantiles, averages and rates.
    """

    def __init__(self, started_at: float, window_s: float = WINDOW_S) -> None:
        self.started_at = started_at
        self.window_s = window_s
        self.load = Sensor(window_s)
        """Load times of logs."""
        self.purgatory = Sensor(window_s)
        """Times that answers waited for replication."""
        self.totals: Counter[Counted] = Counter()
        self.recent = {each: Sensor(window_s) for each in Counted}

    def count(self, what: Counted, now: float, count: int = 1) -> None:
        """Count something."""
        if count:
            self.totals[what] += count
            self.recent[what].record(now, count)

    def replicated(self, records: Collection[r.Record], profile: Profile, now: float) -> None:
        """Count the new group epochs and the committed offsets of a replicated batch."""
        values = [each.value for each in records if each.value is not None]
        removed = [each.key for each in records if each.value is None]
        commits = sum(isinstance(each, r.OffsetCommitValue) for each in values)
        self.count(Counted.COMMITS, now, commits)
        epochs = sum(isinstance(each, r.GroupMetadataValue) for each in values)
        # The generation of a classic group that is converted is no new epoch.
        epochs -= any(isinstance(each, r.ClassicGroupMetadataKey) for each in removed)
        leaves = any(isinstance(each, r.MemberMetadataKey) for each in removed)
        leaves = leaves and not any(isinstance(each, r.MemberMetadataValue) for each in values)
        if not leaves or profile.counts_leaves:
            self.count(Counted.CONSUMER_REBALANCES, now, max(epochs, 0))


def metrics(
    sensors: Sensors,
    groups: Iterable[ConsumerGroup],
    profile: Profile,
    now: float,
    *,
    is_loading: bool,
) -> dict[str, float]:
    """Return the metrics of the coordinator of one offsets partition, by name.

    Args:
        profile: Whose names they have.
        is_loading: Whether it is still reading the log.
    """
    partitions = "partition-count" if profile.kip_metrics else "num-partitions"
    load = sensors.load.values(now)
    of_groups, of_classic = _gauges(tuple(groups), profile)
    values = {
        **of_groups,
        f"{partitions},state=loading": int(is_loading),
        f"{partitions},state=active": int(not is_loading),
        f"{partitions},state=failed": 0,
        "event-queue-size": 0,
        "thread-idle-ratio-avg": 1.0,
        "partition-load-time-max": _ms(max(load, default=0.0)),
        "partition-load-time-avg": _ms(sum(load) / len(load)) if load else 0.0,
    }
    window_s = max(min(sensors.window_s, now - sensors.started_at), 1.0)
    for each in Counted:
        values[f"{each.value}-rate"] = sum(sensors.recent[each].values(now)) / window_s
        values[f"{each.value}-count"] = sensors.totals[each]
    timed = {"event-purgatory-time-ms": sensors.purgatory.values(now)}
    for name in (*_TIMELESS, *timed):
        values |= _times(name, timed.get(name, []), profile)
    named = {PREFIX + name: value for name, value in values.items()}
    return named | {CLASSIC_PREFIX + name: value for name, value in of_classic.items()}


def mean_metrics(of_runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of several runs; for maxima, the maximum."""
    return {
        name: max(values) if name.endswith("-max") else sum(values) / len(values)
        for name in of_runs[0]
        for values in [[each[name] for each in of_runs]]
    }


def _gauges(
    groups: Sequence[ConsumerGroup], profile: Profile
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers of groups and offsets; those of older names apart."""
    consumer = Counter(group.state for group in groups if group.is_consumer_group)
    classic = Counter(
        group.classic.state if group.classic else ClassicState.EMPTY
        for group in groups
        if not group.is_consumer_group and not group.design
    )
    offsets = sum(len(group.offsets) for group in groups)
    classic_type = "generic" if profile.kip_metrics else "classic"
    values: dict[str, float] = {
        "group-count,protocol=consumer": consumer.total(),
        f"group-count,protocol={classic_type}": classic.total(),
    }
    for state in GroupState:
        name = state.value.lower() if profile.kip_metrics else state.value
        values[f"consumer-group-count,state={name}"] = consumer[state]
    if profile.has_classic_group_count:
        values["offset-count"] = offsets
        for each in ClassicState:
            values[f"classic-group-count,state={each.value}"] = classic[each]
    older: dict[str, float] = {"NumOffsets": offsets}
    for each in ClassicState:
        older[f"NumGroups{each.value}"] = classic[each]
    if not profile.kip_metrics:
        older["NumGroups"] = classic.total()
    return values, older


def _times(name: str, values: Sequence[float], profile: Profile) -> Iterator[tuple[str, float]]:
    """Yield the maximum and the quantiles of sorted durations in seconds."""
    yield f"{name}-max", _ms(max(values, default=0.0))
    for suffix, quantile in _QUANTILES.items():
        rank = max(math.ceil(quantile * len(values)) - 1, 0)
        if suffix != _ONLY_OF_KAFKA or not profile.kip_metrics:
            yield f"{name}-{suffix}", _ms(values[rank]) if values else 0.0


def _ms(seconds: float) -> float:
    return seconds * 1000
