"""Records that a batch leaves out of a table because they cannot be written: counts and letters.

Tasks collect them, so executors import this module; the driver's `LetterBox` writes the letters.
"""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.errors import TableError
from spark_groups.spark.processing.counts import FateCount, FateCounts
from spark_groups.spark.processing.kafka_record import Record, records_of
from spark_groups.spark.processing.letters import error_text
from spark_groups.spark.processing.strategies import AtLast, Fate
from spark_groups.spark.reading.decoded import DecodedRows
from spark_groups.spark.schemas.row_formats import UNDECODABLE
from spark_groups.spark.tables.table import Piece

logger = logging.getLogger(__name__)

SHOWN_MAX: Final = 10
"""How many records a task names in the log; the counts have all."""
LETTERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of dead letters of one task: they pass through the driver."""
_PACKAGE: Final = str(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that cannot be written.

    Args:
        record: The record.
        error: Why it cannot be written.
    """

    record: Record
    error: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The records that a task leaves out, or writes without their values.

    Args:
        counts: Their numbers, by partition.
        letters: Those that become dead letters.
    """

    counts: tuple[FateCount, ...] = ()
    letters: tuple[RefusedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Letters(Piece):
    """The dead letters of a batch, for a table that keeps them in the transaction of the batch.

    Args:
        refused: The records that are left out.
    """

    refused: tuple[RefusedRecord, ...] = ()


LETTER_COLUMNS: Final = {
    "group_id": str,
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp_ms": int,
    "key": bytes,
    "value": bytes,
    "headers": str,
    "error": str,
}
"""The columns of a table of dead letters; only key and value may be null."""


def letter_rows(pieces: Iterable[Piece], group_id: str) -> list[tuple[object, ...]]:
    """Return the dead letters of a batch as rows with the columns of `LETTER_COLUMNS`.

    Args:
        pieces: The pieces of a batch.
        group_id: The group that could not write the records.
    """
    return [
        (
            group_id,
            *place_of(each.record),
            each.record.timestamp_ms,
            each.record.key,
            each.record.value,
            _headers_text(each.record),
            # PostgreSQL has no text with the character 0.
            each.error.replace("\0", "\\0"),
        )
        for piece in pieces
        if isinstance(piece, Letters)
        for each in piece.refused
    ]


def _headers_text(record: Record) -> str:
    """Return headers as a JSON array of names and values, which are in base64 or null."""
    headers = [
        (name, None if value is None else base64.b64encode(value).decode())
        for name, value in record.headers
    ]
    return json.dumps(headers)


class LeftOutRecords:
    """Collects the records that a task leaves out.

    Args:
        at_last: What becomes of them.
    """

    def __init__(self, at_last: AtLast) -> None:
        self._at_last = at_last
        self._counts = FateCounts()
        self._letters: list[RefusedRecord] = []
        self._letters_bytes = 0
        self._shown = 0

    def add(self, record: Record, error: str) -> None:
        """Leave a record out.

        Args:
            record: The record.
            error: Why it cannot be written.

        Raises:
            TableError: There are too many dead letters.
        """
        fate = self._at_last.value
        self._shown += 1
        if self._shown <= SHOWN_MAX:
            logger.warning("%s is %s: %s", record, fate.value, error)
        self._counts.add(record, fate, error)
        if self._at_last is AtLast.SKIP:
            return
        self._letters.append(RefusedRecord(record, error))
        self._letters_bytes += len(record.key or b"") + len(record.value or b"")
        if self._letters_bytes > LETTERS_BYTES_MAX:
            raise TableError(
                f"more than {LETTERS_BYTES_MAX >> 20} MiB of records of one task cannot be written,"
                f" the last one is {record}: {error}. Change the transform, or begin"
                " with a new checkpointLocation and a lower maxOffsetsPerTrigger"
            )

    def result(self) -> LeftOut:
        """Return the records that were left out."""
        return LeftOut(self._counts.counts, tuple(self._letters))


def count_undecodable(read: DecodedRows, counts: FateCounts) -> None:
    """Count the records that rows have without their keys or values, as `onUndecodable` says.

    Args:
        read: The rows.
        counts: Gets the counts.
    """
    if UNDECODABLE not in read.rows.schema.names:
        return
    column = read.rows.column(UNDECODABLE)
    if column.null_count < len(column):
        is_bad = column.is_valid()
        reasons = column.filter(is_bad).field("reason").to_pylist()
        for record, reason in zip(records_of([read.records.filter(is_bad)]), reasons, strict=True):
            counts.add(record, Fate.UNDECODABLE, reason)


def reason_of(error: Exception) -> str:
    """Return an error in one line, with the line of the function that raised it.

    Args:
        error: The error of a transform.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        each
        for each in frames
        if "site-packages" not in each.filename and not each.filename.startswith(_PACKAGE)
    ]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return " ".join(error_text(error).split()) + where


def place_of(record: Record) -> tuple[str, int, int]:
    """Return the topic, the partition and the offset of a record."""
    return record.topic, record.partition, record.offset
