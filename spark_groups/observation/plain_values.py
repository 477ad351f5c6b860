"""Views as JSON, and partitions as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from spark_groups.errors import printable
from spark_groups.types import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition indexes by topic."""
    grouped: dict[str, list[int]] = {}
    for each in partitions:
        grouped.setdefault(each.topic, []).append(each.partition)
    return grouped


class View:
    """Base of the dataclasses that commands print as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them; partitions are lists by topic."""
        document: dict[str, Any] = json_value(self)
        return document


PARTITIONS: Final = "tuple[TopicPartition, ...]"
"""The annotation, word for word, of a field whose partitions JSON has as lists by topic."""


def json_value(value: Any) -> Any:
    """Return a value as JSON has it, at every depth: lists for tuples, values for enums."""
    if is_dataclass(value):
        found = {field_: getattr(value, field_.name) for field_ in fields(value)}
        return {
            each.name: by_topic(of) if each.type == PARTITIONS else json_value(of)
            for each, of in found.items()
        }
    if isinstance(value, Mapping):
        return {key: json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    return value.value if isinstance(value, Enum) else value


RANGES_SHOWN: Final = 8


def partition_ranges(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ranges: `flights 0-5, 8; orders 0`; after 8 ranges, only a count."""
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


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: `2 d 3 h`, `5 min 12 s`, `0.4 s`."""
    if not seconds:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for name, unit_s, smaller, smaller_s in _UNITS:
        if whole >= unit_s:
            rest = whole % unit_s // smaller_s
            return f"{whole // unit_s:,} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


_UNITS: Final = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
