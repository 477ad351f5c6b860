"""Records that a batch leaves out of a table because they cannot be written: counts and letters.

Tasks collect them; the driver writes their dead letters before the table's commit, and counts them
after it. Executors import this module.
"""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_groups.errors import OptionsError, TableError
from spark_groups.spark.processing.counts import FateCount, FateCounts
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import (
    Addresses,
    Letter,
    dead_letter,
    error_text,
    own_origin,
)
from spark_groups.spark.processing.strategies import AtLast, SkipOrDeadLetter
from spark_groups.spark.tables.table import Piece

if TYPE_CHECKING:
    # Tasks import this module, and need no query.
    from spark_groups.spark.control.running_query import RunningQuery
    from spark_groups.spark.options.source_options import SourceOptions

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
    """The records that a task leaves out.

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
            *_place(each.record),
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


class LetterBox:
    """Writes the dead letters of batches, each letter of a batch once; lives on the driver.

    Args:
        strategy: Whether records that cannot be written become dead letters, and where.
        is_in_table: Whether the table keeps the letters, so that there is no topic.

    Raises:
        OptionsError: The strategy has a setting that has no meaning for tables.
    """

    def __init__(self, strategy: SkipOrDeadLetter, *, is_in_table: bool = False) -> None:
        if not isinstance(strategy, SkipOrDeadLetter):
            raise OptionsError(
                f"on_error is {type(strategy).__name__}, but a table takes a record now or never:"
                " pass SkipOrDeadLetter(), which leaves the record out; without on_error the batch"
                " fails"
            )
        if strategy.record_deadline_s is not None:
            raise OptionsError(
                "on_error has a record_deadline_s, but a transform gets many records at once and is"
                " not interrupted: leave it out"
            )
        self.strategy = strategy
        self._is_in_table = is_in_table
        self._addresses: dict[str, Addresses] = {}
        self._batch: tuple[str, int] = ("", -1)
        self._written: set[tuple[str, int, int]] = set()
        """Records of the batch whose letters were written: a batch may be compared again."""

    def check(self, options: SourceOptions) -> None:
        """Refuse now what the first batch would be refused for, of topics with known names.

        Args:
            options: The options of the stream.

        Raises:
            OptionsError: The stream has no headers, or a dead-letter topic does not exist.
        """
        from spark_groups.spark.control.running_query import cluster_of  # noqa: PLC0415
        from spark_groups.spark.processing.destinations import destinations  # noqa: PLC0415

        check_headers(self.strategy, options)
        topics = options.subscription.topic_names
        if topics and not self._is_in_table:
            with cluster_of(options) as cluster:
                destinations(cluster, self.strategy, topics, options)

    def open(self, running: RunningQuery) -> None:
        """Learn the dead-letter topics of a batch.

        Args:
            running: The query, before its batch is written.

        Raises:
            OptionsError: The stream has no headers, or a dead-letter topic does not exist.
        """
        from spark_groups.spark.processing.destinations import destinations  # noqa: PLC0415

        check_headers(self.strategy, running.checked)
        topics = {each.topic for each in running.ranges} - set(self._addresses)
        if topics and not self._is_in_table:
            with running.cluster() as cluster:
                self._addresses |= destinations(cluster, self.strategy, topics, running.checked)

    def write(
        self, left_out: Iterable[LeftOut], running: RunningQuery, batch_id: int
    ) -> Sequence[Piece]:
        """Write the dead letters of a batch, and wait until all replicas have them.

        Args:
            left_out: What tasks have left out.
            running: The query.
            batch_id: Spark's number for the batch.

        Returns:
            The letters for the commit of a table that keeps them; else nothing.

        Raises:
            DeliveryError: A letter was not acknowledged.
        """
        if self._batch != (running.run_id, batch_id):
            self._batch, self._written = (running.run_id, batch_id), set()
        letters = {_place(each.record): each for out in left_out for each in out.letters}
        if self._is_in_table:
            return [Letters("", 0, refused=tuple(letters.values()))] if letters else []
        new = [each for place, each in letters.items() if place not in self._written]
        if not new:
            return []
        from spark_groups.spark.processing.record_writer import WRITERS  # noqa: PLC0415

        with WRITERS.borrow(running.range_settings()) as writer:
            for each in new:
                writer.write(self._letter(each, running.checked.group_id))
            writer.await_delivery()
        self._written.update(letters)
        return []

    def _letter(self, refused: RefusedRecord, group_id: str) -> Letter:
        addresses = self._addresses[refused.record.topic]
        assert addresses.dead_letter is not None
        origin = replace(own_origin(refused.record, addresses.first), group_id=group_id)
        return dead_letter(refused.record, origin, refused.error, addresses.dead_letter)


def check_headers(strategy: SkipOrDeadLetter, options: SourceOptions) -> None:
    """Refuse a stream whose dead letters would lack the headers of their records.

    Args:
        strategy: The strategy.
        options: The options of the stream.

    Raises:
        OptionsError: The stream has no headers.
    """
    if strategy.at_last is AtLast.DEAD_LETTER and not options.include_headers:
        raise OptionsError(
            "includeHeaders must be true: dead letters keep the headers of their records. The"
            " transform may leave the column headers out of the table"
        )


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


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
