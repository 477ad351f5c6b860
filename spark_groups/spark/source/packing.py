"""Packs the offset ranges of a batch into Spark's input partitions, one per task.

A Python task costs tens of milliseconds regardless of its size, so small ranges share tasks.
`minPartitions` and `maxRecordsPerPartition` split large ranges, as in Spark's
KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from spark_groups.types import OffsetRange


def pack(
    ranges: Iterable[OffsetRange],
    *,
    default_tasks: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Return sorted, non-empty tuples of ranges, one per task; deterministic.

    Args:
        default_tasks: The maximum number of tasks, unless `min_partitions` is larger.
        min_partitions: The minimum number of tasks, if there are enough offsets.
        max_records_per_partition: The maximum number of offsets per task.
    """
    pieces = sorted(offset_range for offset_range in ranges if len(offset_range))
    if max_records_per_partition is not None:
        pieces = [piece for each in pieces for piece in _split(each, max_records_per_partition)]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_into(pieces, min_partitions)
    tasks = min(len(pieces), max(min_partitions or 0, default_tasks))
    return _balanced(pieces, tasks, max_records_per_partition)


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
    pieces: list[OffsetRange], tasks: int, offsets_max: int | None
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Assign pieces, largest first, to the emptiest task."""
    filled: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    emptiest = [(0, index) for index in range(tasks)]
    for piece in sorted(pieces, key=len, reverse=True):
        size, index = emptiest[0]
        if offsets_max is not None and size and size + len(piece) > offsets_max:
            filled.append([piece])
            heapq.heappush(emptiest, (len(piece), len(filled) - 1))
            continue
        filled[index].append(piece)
        heapq.heapreplace(emptiest, (size + len(piece), index))
    return tuple(sorted(tuple(sorted(ranges)) for ranges in filled))
