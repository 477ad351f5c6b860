"""A Kafka record as applications receive it, and the rows that records are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_groups.errors import OptionsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
HEADERS_COLUMN: Final = "headers"

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic.

    Args:
        value: None is a tombstone.
        timestamp_ms: Milliseconds since 1970; -1: none.
        headers: In order; empty unless the stream sets `includeHeaders`.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def record_rows(batch: DataFrame) -> DataFrame:
    """Return the columns that a record is made of.

    Raises:
        OptionsError: Columns are missing, or keys or values are decoded.
    """
    missing = [name for name in RECORD_COLUMNS if name not in batch.columns]
    if missing:
        raise OptionsError(
            f"the stream has no column {', '.join(missing)}: write the rows of load() unchanged,"
            " except for filters"
        )
    types = dict(batch.dtypes)
    decoded = [name for name in ("key", "value") if types[name] != "binary"]
    if decoded:
        raise OptionsError(
            f"records have bytes, and the column {decoded[0]} has {types[decoded[0]][:60]}: leave"
            f" {decoded[0]}Format out of the stream's options, and decode in the function; or write"
            " the columns with write_table"
        )
    headers = [HEADERS_COLUMN] if HEADERS_COLUMN in batch.columns else []
    return batch.select(*RECORD_COLUMNS, *headers)


def records_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Yield the records of rows, in order."""
    for batch in batches:
        times_us = batch.column("timestamp").cast(pa.int64())
        columns = [batch.column(name).to_pylist() for name in RECORD_COLUMNS[:-1]]
        # Null where onUnreadableTimestamp is null: Kafka's number for no timestamp.
        columns.append([-1 if each is None else each // 1000 for each in times_us.to_pylist()])
        if HEADERS_COLUMN in batch.schema.names:
            columns.append([_headers(each) for each in batch.column(HEADERS_COLUMN).to_pylist()])
        yield from map(Record, *columns)


def _headers(listed: list[dict[str, Any]] | None) -> Headers:
    return tuple((each["key"], each["value"]) for each in listed or ())
