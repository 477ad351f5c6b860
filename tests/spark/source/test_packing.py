"""Ranges into tasks: every offset once, few tasks, even ones."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.spark.source.packing import pack
from spark_groups.types import OffsetRange

TOPIC = uuid.UUID(int=1)
SIZES = st.lists(st.integers(0, 5_000), max_size=40)
TASKS = st.integers(1, 20)
OPTIONAL = st.none() | st.integers(1, 200)


def ranges_of(sizes: Iterable[int]) -> list[OffsetRange]:
    return [OffsetRange(TOPIC, "t", p, 100, 100 + size) for p, size in enumerate(sizes)]


def covered(packed: Iterable[Iterable[OffsetRange]]) -> list[tuple[int, int]]:
    pieces = [(each.partition, o) for task in packed for each in task for o in range_of(each)]
    return sorted(pieces)


def range_of(each: OffsetRange) -> range:
    return range(each.from_offset, each.until_offset)


@given(SIZES, TASKS, OPTIONAL, OPTIONAL)
def test_every_offset_is_in_one_task(
    sizes: list[int], tasks: int, least: int | None, most: int | None
) -> None:
    ranges = ranges_of(sizes)
    packed = pack(ranges, default_tasks=tasks, min_partitions=least, max_records_per_partition=most)
    assert covered(packed) == covered([ranges])
    assert all(packed)
    assert all(len(each) for task in packed for each in task)
    if most is not None:
        assert all(sum(map(len, task)) <= most for task in packed)
    else:
        assert len(packed) <= max(tasks, least or 0)
    if least is not None:
        assert len(packed) >= min(least, sum(sizes))


@given(SIZES, TASKS, OPTIONAL, OPTIONAL, st.randoms())
def test_order_of_the_ranges_does_not_matter(
    sizes: list[int], tasks: int, least: int | None, most: int | None, chance: random.Random
) -> None:
    ranges = ranges_of(sizes)
    shuffled = list(ranges)
    chance.shuffle(shuffled)
    limits = {"default_tasks": tasks, "min_partitions": least, "max_records_per_partition": most}
    assert pack(ranges, **limits) == pack(shuffled, **limits)


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ([], {"default_tasks": 2}, []),
        ([0, 0], {"default_tasks": 2}, []),
        ([5], {"default_tasks": 2}, [5]),
        ([5, 5, 5, 5], {"default_tasks": 2}, [10, 10]),
        ([9, 1, 1, 1], {"default_tasks": 2}, [3, 9]),
        ([12], {"default_tasks": 2, "min_partitions": 4}, [3, 3, 3, 3]),
        ([3], {"default_tasks": 2, "min_partitions": 8}, [1, 1, 1]),
        ([90, 10], {"default_tasks": 2, "min_partitions": 4}, [10, 30, 30, 30]),
        ([5, 5, 5], {"default_tasks": 1, "min_partitions": 3}, [5, 5, 5]),
        ([10], {"default_tasks": 1, "max_records_per_partition": 4}, [3, 3, 4]),
        ([10], {"default_tasks": 1, "max_records_per_partition": 3}, [2, 2, 3, 3]),
        ([3, 3, 3], {"default_tasks": 1, "max_records_per_partition": 6}, [3, 6]),
    ],
)
def test_sizes_of_the_tasks(sizes: list[int], limits: dict[str, int], expected: list[int]) -> None:
    packed = pack(ranges_of(sizes), **limits)
    assert sorted(sum(map(len, task)) for task in packed) == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5_000)), max_size=40), TASKS, OPTIONAL)
def test_small_tables_stay_in_one_task_and_no_task_has_much_more_than_its_share(
    given: list[tuple[int, int]], tasks: int, most: int | None
) -> None:
    ranges = [
        OffsetRange(uuid.UUID(int=table), f"t{table}", partition, 0, size)
        for partition, (table, size) in enumerate(given)
    ]
    tables = {each.topic_id: each.topic_id.int for each in ranges}
    packed = pack(ranges, default_tasks=tasks, max_records_per_partition=most, table_of=tables)
    assert covered([sorted(each for task in packed for each in task)]) == covered(packed)
    assert covered(packed) == sorted(covered([ranges]))
    share = sum(map(len, ranges)) / tasks
    for table in set(tables.values()):
        of_table = [each for each in ranges if each.topic_id.int == table]
        size = sum(map(len, of_table))
        if 0 < size <= min(share, most or size) and len(set(tables.values())) > 1:
            assert sum(any(each.topic_id.int == table for each in task) for task in packed) == 1
    if most is None:
        largest = max((len(each) for each in ranges), default=0)
        assert all(sum(map(len, task)) <= share + max(share, largest) for task in packed)
    else:
        assert all(sum(map(len, task)) <= most for task in packed)
