"""The coordinator's metrics by the names of KIP-848, in virtual time.

Nothing here measures: what happened is told with its times, and the values are computed from it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.lab.coordinator.group import ConsumerGroup, GroupState

WINDOW_S: Final = 60.0
"""How far back a sensor looks: two samples of 30 s, as Kafka's metrics do by default."""
_PREFIX: Final = "kafka.server:type=group-coordinator-metrics,name="
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


class PartitionState(Enum):
    """The state of an offsets partition at the node that leads it."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True)
class Sensor:
    """Durations that were seen of late, in seconds."""

    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, now: float, duration_s: float) -> None:
        """Take one more duration."""
        self._seen.append((now, duration_s))
        self._forget(now)

    def values(self, now: float) -> list[float]:
        """Return the durations of the window, sorted."""
        self._forget(now)
        return sorted(duration_s for _, duration_s in self._seen)

    def _forget(self, now: float) -> None:
        while self._seen and self._seen[0][0] <= now - WINDOW_S:
            self._seen.popleft()


@dataclass(slots=True)
class Sensors:
    """What happened at a node.

    Args:
        started_at: Since when it is there, in seconds.
        load: How long partitions took to load.
        queue: How long events waited for their turn.
        processing: How long they took.
        purgatory: How long answers waited for replication.
        flush: How long it took to write a batch.
        rebalance: New group epochs; the durations mean nothing.
        rebalance_count: How many there were ever.
    """

    started_at: float
    load: Sensor = field(default_factory=Sensor)
    queue: Sensor = field(default_factory=Sensor)
    processing: Sensor = field(default_factory=Sensor)
    purgatory: Sensor = field(default_factory=Sensor)
    flush: Sensor = field(default_factory=Sensor)
    rebalance: Sensor = field(default_factory=Sensor)
    rebalance_count: int = 0

    def rebalanced(self, now: float) -> None:
        """Take a new group epoch."""
        self.rebalance.record(now, 0.0)
        self.rebalance_count += 1


def metrics(
    sensors: Sensors,
    groups: Iterable[ConsumerGroup],
    partitions: Iterable[PartitionState],
    queued: int,
    now: float,
) -> Mapping[str, float]:
    """Return every metric of a node by its name (KIP-848, "Broker Metrics").

    Args:
        sensors: What happened there.
        groups: The groups that it coordinates.
        partitions: The states of the offsets partitions that it leads.
        queued: How many events wait.
        now: Seconds.
    """
    window_s = max(min(WINDOW_S, now - sensors.started_at), 1.0)
    load = sensors.load.values(now)
    busy_s = sum(sensors.processing.values(now))
    values = {
        **_counts(groups, partitions),
        "event-queue-size": queued,
        "consumer-group-rebalance-rate": len(sensors.rebalance.values(now)) / window_s,
        "consumer-group-rebalance-count": sensors.rebalance_count,
        "partition-load-time-max": _ms(max(load, default=0.0)),
        "partition-load-time-avg": _ms(sum(load) / len(load)) if load else 0.0,
        "thread-idle-ratio-avg": max(0.0, 1.0 - busy_s / window_s),
        **dict(_times("event-queue-time-ms", sensors.queue, now)),
        **dict(_times("event-processing-time-ms", sensors.processing, now)),
        **dict(_times("event-purgatory-time-ms", sensors.purgatory, now)),
        **dict(_times("batch-flush-time-ms", sensors.flush, now)),
    }
    return {_PREFIX + name: value for name, value in values.items()}


def _counts(
    groups: Iterable[ConsumerGroup], partitions: Iterable[PartitionState]
) -> dict[str, float]:
    values: dict[str, float] = {
        f"group-count,protocol={each}": 0 for each in ("consumer", "generic")
    }
    for state in GroupState:
        values[f"consumer-group-count,state={state.value.lower()}"] = 0
    for each in PartitionState:
        values[f"partition-count,state={each.value}"] = 0
    for group in groups:
        if group.is_consumer_group:
            values["group-count,protocol=consumer"] += 1
            values[f"consumer-group-count,state={group.state.value.lower()}"] += 1
        else:
            values["group-count,protocol=generic"] += 1
    for each in partitions:
        values[f"partition-count,state={each.value}"] += 1
    return values


def _times(name: str, sensor: Sensor, now: float) -> Iterator[tuple[str, float]]:
    values = sensor.values(now)
    yield f"{name}-max", _ms(max(values, default=0.0))
    for suffix, quantile in _QUANTILES.items():
        rank = max(math.ceil(quantile * len(values)) - 1, 0)
        yield f"{name}-{suffix}", _ms(values[rank]) if values else 0.0


def _ms(seconds: float) -> float:
    return seconds * 1000
