"""Views as plain values, as JSON has them, and partitions as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from spark_groups.errors import printable
from spark_groups.types import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition indexes by topic."""
    grouped: dict[str, list[int]] = {}
    for each in partitions:
        grouped.setdefault(each.topic, []).append(each.partition)
    return grouped


def listed(value: Any) -> Any:
    """Return a value with lists for tuples, all the way down, as JSON would read it back."""
    if isinstance(value, dict):
        return {key: listed(each) for key, each in value.items()}
    return [listed(each) for each in value] if isinstance(value, list | tuple) else value


RANGES_SHOWN: Final = 8


def partition_ranges(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions as ranges: `flights 0-5, 8; orders 0`; what is too many is counted."""
    ranges: list[tuple[str, int, int]] = []
    for each in sorted(partitions):
        if ranges and ranges[-1][0] == each.topic and ranges[-1][2] == each.partition - 1:
            ranges[-1] = (each.topic, ranges[-1][1], each.partition)
        else:
            ranges.append((each.topic, each.partition, each.partition))
    written: dict[str, list[str]] = {}
    for topic, first, last in ranges[:RANGES_SHOWN]:
        written.setdefault(topic, []).append(str(first) if first == last else f"{first}-{last}")
    text = "; ".join(f"{printable(topic)} {', '.join(each)}" for topic, each in written.items())
    rest = sum(last - first + 1 for _, first, last in ranges[RANGES_SHOWN:])
    return f"{text} and {rest:,} more" if rest else text
