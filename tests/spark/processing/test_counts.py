"""Counts of what became of records, through Arrow and back."""

from __future__ import annotations

from spark_groups.spark.processing.counts import COUNT_COLUMNS, FateCount, FateCounts, counts_of
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.strategies import Fate


def record(partition: int, offset: int) -> Record:
    return Record(None, None, "flights", partition, offset, 0)


def test_counts_by_fate_and_partition() -> None:
    counts = FateCounts()
    for offset in range(5):
        counts.add(record(0, offset), Fate.PROCESSED)
    counts.add(record(0, 5), Fate.SKIPPED, "ValueError: a")
    counts.add(record(0, 9), Fate.SKIPPED, "ValueError: b")
    counts.add(record(1, 5), Fate.SKIPPED, "KeyError: c", attempts=3)
    rows = counts.rows()
    assert rows.schema.names == [each.split()[0] for each in COUNT_COLUMNS.split(", ")]
    found = list(counts_of(tuple(row.values()) for row in rows.to_pylist()))
    assert found == [
        FateCount(Fate.PROCESSED, "flights", 0, 5, 0, 4, None),
        FateCount(Fate.SKIPPED, "flights", 0, 2, 5, 9, "ValueError: a"),
        FateCount(Fate.SKIPPED, "flights", 1, 1, 5, 5, "KeyError: c", retried=1),
    ]
    assert str(found[1]) == "2 of flights-0 skipped (offset 5 to 9): ValueError: a"
    assert str(found[2]) == "1 of flights-1 skipped (offset 5): KeyError: c"


def test_task_without_records() -> None:
    assert FateCounts().rows().num_rows == 0
