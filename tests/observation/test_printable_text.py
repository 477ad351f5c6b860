"""Names and partitions as text."""

from __future__ import annotations

import pytest

from spark_groups.errors import printable
from spark_groups.observation.printable_text import partition_ranges
from spark_groups.types import TopicPartition


def partitions(*indexes: int, topic: str = "flights") -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in indexes]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], ""),
        (partitions(3), "flights 3"),
        (partitions(2, 0, 1), "flights 0-2"),
        (partitions(0, 1, 2, 5, 7, 8), "flights 0-2, 5, 7-8"),
        (partitions(0, 1) + partitions(2, topic="orders"), "flights 0-1; orders 2"),
        (partitions(*range(0, 24, 2)), "flights 0, 2, 4, 6, 8, 10, 12, 14 and 4 more"),
        (partitions(*range(10_000)), "flights 0-9999"),
    ],
)
def test_partitions_are_written_as_ranges(given: list[TopicPartition], text: str) -> None:
    assert partition_ranges(given) == text


def test_what_could_move_the_cursor_is_replaced() -> None:
    assert printable("a\x1b[2Jb\r\nc\u202ed") == "a?[2Jb??c?d"
