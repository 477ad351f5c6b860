"""The coordinator's metrics of KIP-848 ("Broker Metrics"), in virtual time.

Metrics of the event queue, processing, flushes, the thread and failed partitions are left out: a
coordinator in virtual time takes no time for an event and can read every log.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_groups.lab.coordinator.group import ConsumerGroup, GroupState

WINDOW_S: Final = 60.0
"""Two samples of 30 s, the default of Kafka's metrics."""
PREFIX: Final = "kafka.server:type=group-coordinator-metrics,name="
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


@dataclass(slots=True)
class Sensor:
    """Durations in seconds, within a window."""

    window_s: float = WINDOW_S
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, now: float, duration_s: float) -> None:
        """Add a duration."""
        self._seen.append((now, duration_s))
        self._forget(now)

    def values(self, now: float) -> list[float]:
        """Return the sorted durations of the window."""
        self._forget(now)
        return sorted(duration_s for _, duration_s in self._seen)

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
        self.rebalance = Sensor(window_s)
        """New group epochs, with durations of 0."""
        self.rebalance_count = 0
        """New group epochs since the start."""

    def rebalanced(self, now: float) -> None:
        """Count a new group epoch."""
        self.rebalance.record(now, 0.0)
        self.rebalance_count += 1


def metrics(
    sensors: Sensors, groups: Iterable[ConsumerGroup], now: float, *, is_loading: bool
) -> dict[str, float]:
    """Return the metrics of the coordinator of one offsets partition, by name.

    Args:
        is_loading: Whether it is still reading the log.
    """
    window_s = max(min(sensors.window_s, now - sensors.started_at), 1.0)
    load = sensors.load.values(now)
    values = {
        **_group_counts(groups),
        "partition-count,state=loading": int(is_loading),
        "partition-count,state=active": int(not is_loading),
        "consumer-group-rebalance-rate": len(sensors.rebalance.values(now)) / window_s,
        "consumer-group-rebalance-count": sensors.rebalance_count,
        "partition-load-time-max": _ms(max(load, default=0.0)),
        "partition-load-time-avg": _ms(sum(load) / len(load)) if load else 0.0,
        **dict(_times("event-purgatory-time-ms", sensors.purgatory, now)),
    }
    return {PREFIX + name: value for name, value in values.items()}


def mean_metrics(of_runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of several runs; for maxima, the maximum."""
    return {
        name: max(values) if name.endswith("-max") else sum(values) / len(values)
        for name in of_runs[0]
        for values in [[each[name] for each in of_runs]]
    }


def _group_counts(groups: Iterable[ConsumerGroup]) -> dict[str, float]:
    values: dict[str, float] = {
        f"group-count,protocol={each}": 0 for each in ("consumer", "generic")
    }
    for state in GroupState:
        values[f"consumer-group-count,state={state.value.lower()}"] = 0
    for group in groups:
        if group.is_consumer_group:
            values["group-count,protocol=consumer"] += 1
            values[f"consumer-group-count,state={group.state.value.lower()}"] += 1
        else:
            values["group-count,protocol=generic"] += 1
    return values


def _times(name: str, sensor: Sensor, now: float) -> Iterator[tuple[str, float]]:
    values = sensor.values(now)
    yield f"{name}-max", _ms(max(values, default=0.0))
    for suffix, quantile in _QUANTILES.items():
        rank = max(math.ceil(quantile * len(values)) - 1, 0)
        yield f"{name}-{suffix}", _ms(values[rank]) if values else 0.0


def _ms(seconds: float) -> float:
    return seconds * 1000
