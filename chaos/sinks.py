"""Where batches are written to: a plain file, and a database that compares next offsets.

A sink is anything with `write` and `close`. One that is meant to hold each record once writes a
batch in a transaction, in which it compares where the batch begins with the next offset that it
wants of each partition, and moves that on.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from chaos.account import SinkRow
from spark_groups.types import OffsetRange, topic_id_text

APPENDED: Final = "*.rows"
_LOCKED_S: Final = 300.0
"""How long a writer waits for another one, which may stand still in its transaction."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The rows of one write.

    Args:
        execution: What its rows are marked with.
        group_id: The consumer group.
        ranges: The ranges read, one for each partition.
        rows: The rows, in the order of their offsets in each partition.
    """

    execution: str
    group_id: str
    ranges: tuple[OffsetRange, ...]
    rows: tuple[SinkRow, ...]


class Sink(Protocol):
    """Where batches are written to."""

    def write(self, batch: SinkBatch) -> None:
        """Write a batch, in one transaction if there is such a thing."""

    def close(self) -> None:
        """Close open files and connections."""


class GapError(Exception):
    """Rows before those of a batch are missing."""


def _nothing() -> None:
    pass


class AppendSink:
    """Appends rows to a file of the member: rows written again are there again.

    Args:
        path: The file.
        midway: Called when half of a batch is written.
    """

    def __init__(self, path: Path, midway: Callable[[], None] = _nothing) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._midway = midway

    def write(self, batch: SinkBatch) -> None:
        """Append a batch."""
        half = (len(batch.rows) + 1) // 2
        self._append(batch.rows[:half])
        self._midway()
        self._append(batch.rows[half:])

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _append(self, rows: tuple[SinkRow, ...]) -> None:
        lines = [f"{r.execution} {r.topic} {r.partition} {r.offset} {r.is_right:d} ." for r in rows]
        # What comes before may have been cut off.
        left = memoryview(("\n" + "\n".join(lines) + "\n").encode("ascii")) if lines else b""
        while left:
            left = left[os.write(self._descriptor, left) :]


def appended_rows(path: Path) -> Iterator[SinkRow]:
    """Return what an append sink holds, without lines that were cut off.

    Args:
        path: Its file.
    """
    with path.open(encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) == 6 and fields[5] == ".":
                execution, topic, partition, offset, is_right, _ = fields
                yield SinkRow(execution, topic, int(partition), int(offset), is_right == "1")


class SqliteSink:
    """Rows in SQLite, with the next offset of each partition in the same transaction.

    Rows that are there are skipped, the rest is written, and a batch that begins beyond the next
    offset is refused. Topics are empty when they are created, so each partition begins at 0.

    Args:
        path: The database, shared by all members.
        midway: Called at the end of a transaction, before its commit.
    """

    def __init__(self, path: Path, midway: Callable[[], None] = _nothing) -> None:
        self._midway = midway
        self._database = sqlite3.connect(path, timeout=_LOCKED_S, isolation_level=None)
        # Processes are killed here, not machines.
        self._database.execute("PRAGMA synchronous = OFF")

    @staticmethod
    def create(path: Path) -> None:
        """Make an empty database.

        Args:
            path: Where.
        """
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE next_offsets (group_id TEXT, topic_id TEXT, partition INTEGER,"
            " next_offset INTEGER, PRIMARY KEY (group_id, topic_id, partition))"
        )
        # No key keeps a row from being there twice: only the comparison does.
        database.execute(
            "CREATE TABLE rows (execution TEXT, topic TEXT, partition INTEGER, record_offset"
            " INTEGER, is_right INTEGER)"
        )
        database.commit()
        database.close()

    def write(self, batch: SinkBatch) -> None:
        """Write the rows that are missing.

        Raises:
            GapError: Rows before it are missing.
        """
        self._database.execute("BEGIN IMMEDIATE")
        try:
            wanted = {(e.topic, e.partition): self._move_on(batch, e) for e in batch.ranges}
            self._database.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?)",
                [row for row in batch.rows if row.offset >= wanted[row.topic, row.partition]],
            )
            self._midway()
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _move_on(self, batch: SinkBatch, each: OffsetRange) -> int:
        """Return the next offset that is wanted of a partition, and move it on."""
        key = (batch.group_id, topic_id_text(each.topic_id), each.partition)
        found = self._database.execute(
            "SELECT next_offset FROM next_offsets"
            " WHERE group_id = ? AND topic_id = ? AND partition = ?",
            key,
        ).fetchone()
        wanted = found[0] if found else 0
        if each.from_offset > wanted:
            raise GapError(
                f"{each.topic}-{each.partition}: {batch.execution} begins at {each.from_offset},"
                f" and {wanted} is the next that is wanted"
            )
        self._database.execute(
            "INSERT OR REPLACE INTO next_offsets VALUES (?, ?, ?, ?)",
            (*key, max(wanted, each.until_offset)),
        )
        return int(wanted)


def sqlite_rows(path: Path) -> Iterator[SinkRow]:
    """Return what a database holds, in the order in which it was written.

    Args:
        path: The database.
    """
    database = sqlite3.connect(path)
    try:
        for row in database.execute("SELECT * FROM rows ORDER BY rowid"):
            execution, topic, partition, offset, is_right = row
            yield SinkRow(execution, topic, partition, offset, bool(is_right))
    finally:
        database.close()
