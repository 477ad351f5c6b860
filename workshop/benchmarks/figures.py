"""Figures of the readings that benchmarks leave as JSON: medians, spreads, goals met or missed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workshop.benchmarks.readers import (
    FAST,
    JVM_BEST,
    JVM_DEFAULT,
    JVM_TUNED,
    NOWHERE,
    RANGES,
)

SMALL, SMALL_LZ4, LARGE = "100 B, none", "100 B, lz4", "1000 B, none"
RATE_SOURCE, THIS_SOURCE, JVM_SOURCE = "rate-micro-batch", "kafka-group", "JVM source"
TRIGGER_ABOVE_MS = 40
"""How far the trigger of this source may be above the rate source's."""
FAST_UNIX = f"{FAST} (unix sockets)"
ASYNCHRONOUS = ", asynchronous progress"

Readings = Sequence[Mapping[str, Any]]
Parts = Mapping[str, Mapping[str, Any]]
"""Results by benchmark name, without those that did not run."""


@dataclass(frozen=True)
class Spread:
    """A median, and the lowest and highest of what it is the median of."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, found: Iterable[float]) -> Spread | None:
        """Return the spread of numbers, or None if there are none."""
        numbers = sorted(found)
        return cls(statistics.median(numbers), numbers[0], numbers[-1]) if numbers else None


@dataclass(frozen=True)
class Goal:
    """A goal and its measurement.

    Args:
        what: What it is about.
        limit: The least or the most that is wanted.
        is_at_least: Whether the limit is the least.
        unit: What stands behind numbers.
        measured: What came out, if it was measured.
    """

    what: str
    limit: float
    is_at_least: bool
    unit: str
    measured: Spread | None

    @property
    def verdict(self) -> str:
        """Whether the median is within the limit, in words."""
        if self.measured is None:
            return "not measured"
        median = self.measured.median
        is_met = median >= self.limit if self.is_at_least else median <= self.limit
        return "met" if is_met else "**missed**"


def readings_of(parts: Parts, name: str) -> Readings:
    """Return the readings of a benchmark; none if it did not run."""
    readings: Readings = parts.get(name, {}).get("readings", ())
    return readings


def rate(reading: Mapping[str, Any]) -> float:
    """Return million rows each second of a reading of a topic."""
    return float(reading["counted_rows"] / reading["add_batch_s"] / 1e6)


def cpu_s(reading: Mapping[str, Any], *processes: str) -> float:
    """Return CPU seconds for a million rows, of some of jvm, python and broker."""
    used = sum(reading[f"{process}_cpu_s"] for process in processes)
    return float(used / reading["counted_rows"] * 1e6)


def spark_cpu_s(reading: Mapping[str, Any]) -> float:
    """Return CPU seconds for a million rows, of all but the broker."""
    return cpu_s(reading, "jvm", "python")


def best_peer(readings: Readings, topic: str) -> str:
    """Return by which options Spark's own source has read a topic fastest."""
    rates = {
        name: Spread.of(rate(e) for e in readings if (e["topic"], e["reader"]) == (topic, name))
        for name in (JVM_BEST, JVM_TUNED, JVM_DEFAULT)
    }
    found = {name: each.median for name, each in rates.items() if each is not None}
    return max(found, key=found.__getitem__, default=JVM_BEST)


def ratios(
    readings: Readings, topic: str, reader: str, peer: str, figure: Callable[..., float]
) -> Spread | None:
    """Return what a reader's figure is to its peer's, each time in the same repeat."""
    found = {
        (reading["reader"], reading["repeat"]): figure(reading)
        for reading in readings
        if reading["topic"] == topic
    }
    return Spread.of(
        value / found[peer, repeat]
        for (name, repeat), value in found.items()
        if name == reader and (peer, repeat) in found
    )


def above(readings: Readings, source: str, base: str, figure: str, **which: Any) -> Spread | None:
    """Return how far the medians of a source's repeats are above those of another one's."""
    found: dict[tuple[str, int], list[float]] = {}
    for reading in readings:
        if all(reading[name] == value for name, value in which.items()):
            found.setdefault((reading["source"], reading["repeat"]), []).append(reading[figure])
    return Spread.of(
        statistics.median(values) - statistics.median(found[base, repeat])
        for (name, repeat), values in found.items()
        if name == source and (base, repeat) in found
    )


def percentile(numbers: Sequence[float], rank: float) -> float:
    """Return the smallest number that at least `rank` percent are not above."""
    ordered = sorted(numbers)
    return ordered[max(0, -(-len(ordered) * int(rank) // 100) - 1)]


def latencies(readings: Readings, source: str, rank: float) -> Spread | None:
    """Return a percentile of the latencies of each repeat."""
    mine = [reading["latency_ms"] for reading in readings if reading["source"] == source]
    return Spread.of(percentile(each, rank) for each in mine if each)


def latency_goals(latency: Readings) -> list[Goal]:
    """Return the goals from record to row, which follow from the rate source's trigger."""
    found = []
    for reader, way in ((FAST, ""), (FAST_UNIX, ""), (FAST_UNIX, ASYNCHRONOUS)):
        bases = [
            statistics.median(each["trigger_ms"])
            for each in latency
            if each["source"] == f"{RATE_SOURCE}{way}" and each["trigger_ms"]
        ]
        if not bases:
            continue
        median_ms = 1.5 * (statistics.median(bases) + TRIGGER_ABOVE_MS)
        source = f"{reader}{way}"
        found += [
            Goal(
                f"record to row, {source}, p{rank}",
                round(limit_ms),
                False,
                " ms",
                latencies(latency, source, rank),
            )
            for rank, limit_ms in ((50, median_ms), (99, 2 * median_ms))
        ]
    return found


def goals(parts: Parts) -> list[Goal]:
    """Return the goals, each with its measurement."""
    topics = readings_of(parts, "throughput")
    triggers = readings_of(parts, "triggers")
    latency = readings_of(parts, "latency")
    starts = readings_of(parts, "cold_start")
    small, large = (best_peer(topics, topic) for topic in (SMALL, LARGE))
    return [
        *(
            Goal(f"{reader}, {topic}, to {peer}", limit, True, "x", ratios(topics, *key, rate))
            for reader, topic, peer, limit in (
                (FAST, SMALL, NOWHERE, 0.85),
                (FAST, SMALL_LZ4, NOWHERE, 0.85),
                (FAST, LARGE, NOWHERE, 0.6),
                (FAST, SMALL, small, 2.2),
                (FAST, LARGE, large, 2.5),
                (RANGES, SMALL, JVM_TUNED, 0.95),
            )
            for key in [(topic, reader, peer)]
        ),
        *(
            Goal(
                f"CPU of all but the broker, {reader}, {topic}, to {peer}",
                limit,
                False,
                "x",
                ratios(topics, topic, reader, peer, spark_cpu_s),
            )
            for reader, topic, peer, limit in (
                (FAST, SMALL, small, 0.7),
                (FAST, LARGE, large, 0.65),
                (RANGES, SMALL, JVM_TUNED, 1.03),
            )
        ),
        *(
            Goal(
                f"trigger above the rate source, partitions: {partitions:,}",
                limit_ms,
                False,
                " ms",
                above(triggers, THIS_SOURCE, RATE_SOURCE, "trigger_ms", partitions=partitions),
            )
            for partitions, limit_ms in (
                (1, TRIGGER_ABOVE_MS),
                (100, TRIGGER_ABOVE_MS),
                (1000, 200),
                (10_000, 1500),
            )
        ),
        *latency_goals(latency),
        Goal(
            f"cold start to the first row, {FAST}, above the {JVM_SOURCE}",
            2.0,
            False,
            " s",
            above(starts, FAST, JVM_SOURCE, "from_process_s"),
        ),
    ]
