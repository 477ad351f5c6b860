"""Packs the offset ranges of a batch into Spark's input partitions, one per task.

A Python task costs tens of milliseconds regardless of its size, so small ranges share tasks.
`minPartitions` and `maxRecordsPerPartition` split large ranges, as in Spark's
KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from spark_groups.types import OffsetRange, TopicId

_Unit = tuple[OffsetRange, ...]
"""Ranges that share a task."""


def pack(
    ranges: Iterable[OffsetRange],
    *,
    default_tasks: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    table_of: Mapping[TopicId, int] | None = None,
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Return sorted, non-empty tuples of ranges, one per task; deterministic.

    Args:
        default_tasks: The maximum number of tasks, unless `min_partitions` is larger.
        min_partitions: The minimum number of tasks, if there are enough offsets.
        max_records_per_partition: The maximum number of offsets per task.
        table_of: The table of each topic. The ranges of a table with no more than a task's share of
            the offsets go to one task, so that the table gets one file.
    """
    pieces = sorted(offset_range for offset_range in ranges if len(offset_range))
    if max_records_per_partition is not None:
        pieces = [piece for each in pieces for piece in _split(each, max_records_per_partition)]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_into(pieces, min_partitions)
    tasks_max = max(min_partitions or 0, default_tasks)
    units: list[_Unit] = [(piece,) for piece in pieces]
    if table_of is not None and len(set(table_of.values())) > 1:
        share = min(sum(map(len, pieces)) / tasks_max, max_records_per_partition or float("inf"))
        units = [*_units(pieces, table_of, share)]
    return _balanced(units, min(len(units), tasks_max), max_records_per_partition)


def _units(
    pieces: Iterable[OffsetRange], table_of: Mapping[TopicId, int], share: float
) -> Iterator[_Unit]:
    """Yield the pieces of small tables together, and those of others one by one.

    Args:
        pieces: The pieces.
        table_of: The table of each topic.
        share: How many offsets a small table has at most.
    """
    by_table: dict[int, list[OffsetRange]] = {}
    for piece in pieces:
        by_table.setdefault(table_of[piece.topic_id], []).append(piece)
    for of_table in by_table.values():
        if sum(map(len, of_table)) <= share:
            yield tuple(of_table)
        else:
            yield from ((piece,) for piece in of_table)


def _split(each: OffsetRange, offsets_max: int) -> Iterator[OffsetRange]:
    return _cut(each, -(-len(each) // offsets_max))


def _split_into(pieces: list[OffsetRange], tasks: int) -> list[OffsetRange]:
    """Split ranges in proportion to their sizes into about `tasks` pieces.

    A range that is smaller than an equal share stays whole.
    """
    total = sum(map(len, pieces))
    whole = [each for each in pieces if len(each) * tasks <= total]
    large = [each for each in pieces if len(each) * tasks > total]
    large_total = sum(map(len, large))
    large_tasks = max(1, tasks - len(whole))
    cut = [
        piece
        for each in large
        for piece in _cut(each, min(len(each), -(-len(each) * large_tasks // large_total)))
    ]
    return sorted(whole + cut)


def _cut(each: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Split a range into `count` pieces whose sizes differ by at most one offset."""
    for index in range(count):
        yield OffsetRange(
            each.topic_id,
            each.topic,
            each.partition,
            each.from_offset + len(each) * index // count,
            each.from_offset + len(each) * (index + 1) // count,
        )


def _balanced(
    units: Iterable[_Unit], tasks: int, offsets_max: int | None
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Assign units, largest first, to the emptiest task."""
    filled: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    emptiest = [(0, index) for index in range(tasks)]
    for unit in sorted(units, key=_offsets, reverse=True):
        size, index = emptiest[0]
        if offsets_max is not None and size and size + _offsets(unit) > offsets_max:
            filled.append([*unit])
            heapq.heappush(emptiest, (_offsets(unit), len(filled) - 1))
            continue
        filled[index] += unit
        heapq.heapreplace(emptiest, (size + _offsets(unit), index))
    return tuple(sorted(tuple(sorted(ranges)) for ranges in filled))


def _offsets(unit: _Unit) -> int:
    return sum(map(len, unit))
