"""Counts of records by fate, made in tasks and added up on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa

from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.strategies import Fate

COUNT_COLUMNS: Final = (
    "fate string, topic string, partition int, records bigint, first_offset bigint,"
    " last_offset bigint, error string, retried bigint"
)
_SCHEMA: Final = pa.schema(
    [
        *(("fate", pa.string()), ("topic", pa.string()), ("partition", pa.int32())),
        *(("records", pa.int64()), ("first_offset", pa.int64()), ("last_offset", pa.int64())),
        *(("error", pa.string()), ("retried", pa.int64())),
    ]
)


@dataclass(frozen=True, slots=True)
class FateCount:
    """The number of records of one partition with one fate.

    Args:
        error: Why the first of these records was not processed.
        retried: The number of these records that took more than one attempt.
    """

    fate: Fate
    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    error: str | None
    retried: int = 0

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        offsets = f"{self.first_offset}"
        if self.last_offset != self.first_offset:
            offsets += f" to {self.last_offset}"
        return f"{self.records} of {where} {self.fate.value} (offset {offsets}): {self.error}"


class FateCounts:
    """Counts the records of one task."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Fate, str, int], FateCount] = {}

    def add(
        self, record: Record, fate: Fate, error: str | None = None, *, attempts: int = 1
    ) -> None:
        """Count a record."""
        key = (fate, record.topic, record.partition)
        known = self._counts.get(key, FateCount(*key, 0, record.offset, record.offset, error))
        self._counts[key] = replace(
            known,
            records=known.records + 1,
            last_offset=record.offset,
            retried=known.retried + (attempts > 1),
        )

    @property
    def counts(self) -> tuple[FateCount, ...]:
        """The counts of the task."""
        return tuple(self._counts.values())

    def rows(self) -> pa.RecordBatch:
        """Return the counts as rows in COUNT_COLUMNS, for the driver."""
        rows = [{**asdict(count), "fate": count.fate.value} for count in self._counts.values()]
        return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def counts_of(rows: Iterable[Any]) -> Iterator[FateCount]:
    """Yield the counts in rows of all tasks."""
    for fate, *others in rows:
        yield FateCount(Fate(fate), *others)
