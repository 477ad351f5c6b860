"""`spark_groups.sqlite_table`: an SQLite table with a fence, for tests and small uses.

Tasks stage rows in files beside the database, because SQLite has one writer at a time. The driver
adds them in one transaction, in which it compares the entries.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import time as epoch_s
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import OptionsError, TableChangedError, TableError, TableRestoredError
from spark_groups.fence.compare import NEW_CHECKPOINT, Decision
from spark_groups.fence.entries import Entry, FenceKey, TableState, holds, of_topics
from spark_groups.spark.tables.column_types import MICROS, MICROS_UTC, TypeRules
from spark_groups.spark.tables.column_values import Limits
from spark_groups.spark.tables.columns import TableColumns, schema_of_text
from spark_groups.spark.tables.growth import evolves
from spark_groups.spark.tables.left_out import LETTER_COLUMNS, letter_rows
from spark_groups.spark.tables.staged_table import StagedTable
from spark_groups.spark.tables.table import PREFIX, Attempt, Orphan, Piece, described, no_rows
from spark_groups.types import TopicId

FENCE: Final = "spark_groups_fence"
"""The table of the entries, in the same database."""
LOCK_WAIT_S: Final = 30.0
"""How long a commit waits for another one, in seconds."""

_MAKE_FENCE: Final = f"""
CREATE TABLE IF NOT EXISTS {FENCE} (
  table_name TEXT NOT NULL, group_id TEXT NOT NULL, topic_id TEXT NOT NULL,
  partition INTEGER NOT NULL, start_offset INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  PRIMARY KEY (table_name, group_id, topic_id, partition))"""
_READ: Final = f"""
SELECT group_id, topic_id, partition, start_offset, next_offset FROM {FENCE}
WHERE table_name = ?"""
_WRITE: Final = f"INSERT OR REPLACE INTO {FENCE} VALUES (?, ?, ?, ?, ?, ?)"

_TYPES: Final[Mapping[pa.DataType, str]] = {
    **dict.fromkeys((pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()), "INTEGER"),
    **dict.fromkeys((pa.float32(), pa.float64()), "REAL"),
    **dict.fromkeys((pa.string(), pa.date32(), pa.time64("us"), MICROS, MICROS_UTC), "TEXT"),
    pa.binary(): "BLOB",
}
_RULES: Final = TypeRules(
    "SQLite",
    {each: each for each in _TYPES},
    listed=frozenset(),
    casts=True,
    # SQLite stores NaN as null.
    limits=Limits(has_nan=False),
)
_TAKEN: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "INTEGER": (pa.bool_(), pa.int64()),
    "NUMERIC": (pa.bool_(), pa.int64(), pa.float64()),
    "REAL": (pa.float64(),),
    "TEXT": (pa.date32(), pa.time64("us"), MICROS, MICROS_UTC, pa.string()),
    "BLOB": (pa.binary(),),
}
"""The Arrow types whose values a column of each affinity does not change."""


def sqlite_table(
    path: str | Path, table: str, *, dead_letters: str | None = None, evolve: str | None = None
) -> SqliteTable:
    """Return an SQLite table for `spark_groups.write_table`; the first batch may create it.

    Dates, times and decimal numbers become text. The Spark master has to be local; through Spark
    Connect, that of the server.

    Args:
        path: The database's file.
        table: The table's name.
        dead_letters: The name of a table that gets dead letters of `on_error` in the transaction of
            their batch, so exactly once; None: a topic gets them.
        evolve: `add`: a batch's new columns are added to the table; None: they are an error.

    Raises:
        OptionsError: The database is in memory.
    """
    if not str(path) or str(path).startswith((":memory:", "file:")):
        raise OptionsError("tasks cannot reach a database in memory: name a file")
    return SqliteTable(Path(path).resolve(), table, dead_letters, evolves=evolves(evolve))


@dataclass(frozen=True, slots=True)
class ArrowTaskWriter:
    """Stages the rows of a task in a file; pickled to executors.

    Args:
        directory: The directory of staged files.
        attempt: The beginning of the names of the files.
        columns: The columns of the table.
    """

    directory: Path
    attempt: str
    columns: TableColumns

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Stage the rows of one task; a task without rows makes no file."""
        writer, rows, empty = None, 0, None
        path = self.directory / f"{self.attempt}-{task}.arrow"
        with ExitStack() as opened:
            for each in self.columns.fitted(batches):
                if not each.num_rows:
                    empty = no_rows(each.schema)
                    continue
                if writer is None:
                    # The database may be closed to other users.
                    self.directory.mkdir(mode=0o700, exist_ok=True)
                    file = opened.enter_context(open(path, "xb", opener=_open_for_owner))
                    writer = opened.enter_context(pa.ipc.new_file(file, each.schema))
                writer.write_batch(each)
                rows += each.num_rows
        if rows:
            yield Piece(path.name, rows, path.stat().st_size)
        elif empty:
            yield empty


class SqliteTable(StagedTable):
    """An SQLite table with a fence; `sqlite_table` makes one, and makes the path absolute."""

    def __init__(
        self, path: Path, table: str, letters: str | None = None, *, evolves: bool = False
    ) -> None:
        super().__init__(f"the SQLite table {table} in {path}", letters)
        self._path = path
        self._table = table
        self._evolves = evolves

    @property
    def staged(self) -> Path:
        """The directory of staged files."""
        return self._path.with_name(f"{self._path.name}-staged")

    def check(self) -> TableColumns:
        """Return the columns to which rows are fitted.

        Raises:
            OptionsError: The Spark master is not local.
            TableError: There is no such directory, or the database cannot be read, or the table
                of dead letters is another one.
        """
        if not self._path.parent.is_dir():
            raise TableError(f"{self}: there is no directory {self._path.parent}; make it")
        if self._letters is not None and self._path.exists():
            with self._transaction("DEFERRED") as connection:
                named = f"PRAGMA table_info({_quoted(self._letters)})"
                if columns := [str(row[1]) for row in connection.execute(named)]:
                    self._check_letter_columns(columns)
        return self.task_writer(Attempt("", 0, "check")).columns

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

        Raises:
            TableChangedError: The database is locked.
            TableRestoredError: The table was dropped, and its fence was not.
        """
        del group_id
        if not self._path.exists():
            return TableState()
        with self._transaction("DEFERRED") as connection:
            entries = self._entries(connection)
            is_there = self._is_there(connection)
        if entries and not is_there:
            raise TableRestoredError(
                f"{self} was dropped, so it lacks rows that its fence counts; to begin again:"
                f" DELETE FROM {FENCE} WHERE table_name = '{self._table}'; to have all records"
                " written again, then also run for each group: spark-groups reset-offsets GROUP"
                f" --to-earliest --all-topics --execute; then {NEW_CHECKPOINT}"
            )
        return TableState(is_there=is_there, entries=of_topics(entries, topic_ids))

    def task_writer(self, attempt: Attempt) -> ArrowTaskWriter:
        """Return the writer that stages rows in the tasks of an attempt.

        Raises:
            OptionsError: The Spark master is not local.
        """
        master = _master()
        if master.partition("[")[0] != "local":
            raise OptionsError(
                f"{self} is a file of this machine, and the master is {master}: use local[*], or"
                " spark_groups.postgres_table"
            )
        columns = TableColumns(str(self), _RULES, evolves=self._evolves)
        if self._path.exists():
            with self._transaction("DEFERRED") as connection:
                columns = self._columns(connection)
        return ArrowTaskWriter(self.staged, attempt.name, columns)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add rows and change entries, in one transaction."""
        # The transaction compares the entries that it changes.
        del state
        written = [piece for piece in pieces if piece.rows]
        with self._transaction("IMMEDIATE") as connection:
            entries = self._entries(connection)
            if not holds(decision.changes, entries.get):
                raise TableChangedError(f"another writer has committed to {self}")
            if entries and not self._is_there(connection):
                raise TableChangedError(f"{self} was dropped after it was compared")
            for each in written:
                self._add(connection, each)
            for each in described(pieces)[:1]:
                if each.details:
                    self._make(connection, schema_of_text(each.details))
            if letters := letter_rows(pieces, attempt.group_id):
                self._add_letters(connection, letters)
            if not self._is_there(connection):
                # There are no columns for a new table: a later batch creates it.
                return
            connection.execute(_MAKE_FENCE)
            for change in decision.changes:
                key, entry = change.key, change.entry
                offsets = (entry.start_offset, entry.next_offset)
                row = (self._table, attempt.group_id, str(key.topic_id), key.partition, *offsets)
                connection.execute(_WRITE, row)
        for each in written:
            (self.staged / each.name).unlink(missing_ok=True)

    def orphans(self, older_than_s: float) -> list[Orphan]:
        """Return staged files of crashed or refused attempts."""
        staged = sorted(self.staged.glob(f"{PREFIX}*"))
        found = [(each, each.stat()) for each in staged if not each.is_symlink()]
        return [
            Orphan(each.name, status.st_size, status.st_mtime)
            for each, status in found
            if status.st_mtime <= epoch_s() - older_than_s
        ]

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Delete orphans."""
        for orphan in orphans:
            (self.staged / orphan.name).unlink(missing_ok=True)

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self._path, timeout=LOCK_WAIT_S, isolation_level=None)
            ) as connection:
                connection.execute(f"BEGIN {kind}")
                try:
                    yield connection
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise TableChangedError(f"another writer keeps {self} locked") from error
            raise TableError(f"{self}: {error}") from error
        except sqlite3.Error as error:
            raise TableError(f"{self}: {error}") from error

    def _entries(self, connection: sqlite3.Connection) -> Mapping[FenceKey, Entry]:
        if not connection.execute(f"PRAGMA table_info({FENCE})").fetchall():
            return {}
        return {
            FenceKey(group_id, uuid.UUID(topic_id), partition): Entry(start, following)
            for group_id, topic_id, partition, start, following in connection.execute(
                _READ, [self._table]
            )
        }

    def _columns(self, connection: sqlite3.Connection) -> TableColumns:
        """Return the columns of the table, to which rows are fitted."""
        found = connection.execute(f"PRAGMA table_xinfo({_quoted(self._table)})").fetchall()
        if not found:
            return TableColumns(str(self), _RULES, evolves=self._evolves)
        fields, others, texts = [], {}, set()
        for _, name, kind, needed, _, _, hidden in found:
            if hidden:
                continue
            affinity = _affinity(kind.upper())
            *others[name], widest = _TAKEN[affinity]
            fields.append(pa.field(name, widest, not needed))
            if affinity == "TEXT":
                texts.add(name)
        return TableColumns(
            str(self),
            _RULES,
            pa.schema(fields),
            others={name: tuple(types) for name, types in others.items()},
            with_default=frozenset(
                name for _, name, _, _, default, is_key, _ in found if default or is_key
            ),
            not_written={
                name: "is computed by the table" for _, name, *_, hidden in found if hidden
            },
            shown={name: kind or "BLOB" for _, name, kind, *_ in found},
            any_decimal=frozenset(texts),
            evolves=self._evolves,
        )

    def _is_there(self, connection: sqlite3.Connection) -> bool:
        return bool(connection.execute(f"PRAGMA table_xinfo({_quoted(self._table)})").fetchone())

    def _add(self, connection: sqlite3.Connection, piece: Piece) -> None:
        """Add the rows of a staged file, and create the table if there is none."""
        with pa.memory_map(str(self.staged / piece.name)) as source:
            reader = pa.ipc.open_file(source)
            self._make(connection, reader.schema)
            altered = f"ALTER TABLE {_quoted(self._table)}"
            for each in self._columns(connection).check_staged([reader.schema]):
                connection.execute(f"{altered} ADD COLUMN {_declared(each)}")
            names = ", ".join(map(_quoted, reader.schema.names))
            marks = ", ".join("?" * len(reader.schema))
            into = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})"
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                values = [self._values(batch, name) for name in batch.schema.names]
                connection.executemany(into, zip(*values, strict=True))

    def _add_letters(
        self, connection: sqlite3.Connection, letters: Sequence[tuple[object, ...]]
    ) -> None:
        assert self._letters is not None
        kinds = {str: "TEXT NOT NULL", int: "INTEGER NOT NULL", bytes: "BLOB"}
        columns = ", ".join(f'"{name}" {kinds[each]}' for name, each in LETTER_COLUMNS.items())
        table = _quoted(self._letters)
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        names = ", ".join(f'"{name}"' for name in LETTER_COLUMNS)
        marks = ", ".join("?" * len(LETTER_COLUMNS))
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", letters)

    def _make(self, connection: sqlite3.Connection, schema: pa.Schema) -> None:
        """Create the table, if there is none; decimal numbers become text."""
        if not self._is_there(connection):
            fields = ", ".join(map(_declared, schema))
            connection.execute(f"CREATE TABLE {_quoted(self._table)} ({fields})")

    def _values(self, batch: pa.RecordBatch, name: str) -> Iterator[Any]:
        """Return the values of a column as SQLite takes them.

        Raises:
            TableError: A date or time is one that text of SQLite cannot hold.
        """
        try:
            return map(_plain, batch[name].to_pylist())
        except (OverflowError, ValueError) as error:
            raise TableError(
                f"the batch does not fit {self}: {name} has a date or time outside the years 1 to"
                " 9999; change it in the transform"
            ) from error


def _master() -> str:
    """Return the master of this application, or of its Spark Connect server; without one, local."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if (context := SparkContext._active_spark_context) is not None:
        return str(context.master)
    session = SparkSession.getActiveSession()
    return "local" if session is None else str(session.conf.get("spark.master"))


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _affinity(declared: str) -> str:
    """Return the affinity that SQLite derives from a declared type."""
    for affinity, parts in (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    ):
        if any(part in declared for part in parts):
            return affinity
    return "NUMERIC" if declared else "BLOB"


def _plain(value: Any) -> Any:
    """Return a value of a type that SQLite stores."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _declared(column: pa.Field) -> str:
    return f"{_quoted(column.name)} {_TYPES.get(column.type, 'TEXT')}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
