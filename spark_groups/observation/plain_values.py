"""Views as plain values, as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_groups.types import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition indexes by topic.

    Args:
        partitions: The partitions.
    """
    grouped: dict[str, list[int]] = {}
    for each in partitions:
        grouped.setdefault(each.topic, []).append(each.partition)
    return grouped


def listed(value: Any) -> Any:
    """Return a value with lists for tuples, all the way down, as JSON would read it back.

    Args:
        value: Dictionaries, tuples and what they are made of.
    """
    if isinstance(value, dict):
        return {key: listed(each) for key, each in value.items()}
    return [listed(each) for each in value] if isinstance(value, list | tuple) else value
