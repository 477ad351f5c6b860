"""Places with one table, which tests read with its own client or library, and their writer."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

import spark_groups
from spark_groups.fence.compare import Decision, compare
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import GROUP, SCHEMA, rows


class Place:
    """A place with one table, which tests read with its own client or library."""

    shown: str
    """How errors name the table, or begin to."""
    created_by_another = "another writer has"
    """How errors name the refusal of a second writer that creates the table."""
    second_version: int | None = None
    """The version that the second commit to a table records; None: tables have no versions."""
    merge_on: tuple[str, ...] = ()
    """The columns by which rows replace others; none: rows are added."""

    def fenced(self, **more: Any) -> FencedTable:
        """Return the table as an application opens it, with more arguments."""
        raise NotImplementedError

    def create(self, schema: pa.Schema) -> None:
        """Create the table, as a user does."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """Return the names of the table's columns."""
        raise NotImplementedError

    def values(self, *names: str, from_offset: int = 0) -> list[tuple[Any, ...]]:
        """Return some columns of all rows, or of those from an offset on."""
        raise NotImplementedError

    def staged(self) -> list[str]:
        """Return the names of staged rows that no commit has taken."""
        raise NotImplementedError

    def files(self, from_offset: int = 0) -> list[str]:
        """Return the files that the library reads for rows from an offset on; none: it has none."""
        return []

    def restore_first(self) -> None:
        """Restore the table to the version of its first batch."""
        raise NotImplementedError

    def offsets(self, partition: int = 0) -> list[int]:
        found = self.values("partition", "offset")
        return sorted(offset for index, offset in found if index == partition)

    def entries(self, group_id: str = GROUP) -> dict[FenceKey, Entry]:
        """Return the table's entries, read by a new table object."""
        return dict(self.fenced().read(group_id).entries)


class Database(Place):
    """A database with one table."""

    binary: str

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Callable[[], object]]:
        """Keep the fence locked, as a long commit does; yields what ends it."""
        raise NotImplementedError

    def create(self, schema: pa.Schema) -> None:
        kinds = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "text"}
        columns = [
            f'"{each.name}" {kinds.get(each.type, self.binary)}{" NOT NULL" * (not each.nullable)}'
            for each in schema
        ]
        self.run(f"CREATE TABLE rows ({', '.join(columns)})")

    def values(self, *names: str, from_offset: int = 0) -> list[tuple[Any, ...]]:
        columns = ", ".join(f'"{each}"' for each in names)
        where = f' WHERE "offset" >= {from_offset}' if from_offset else ""
        return self.run(f"SELECT {columns} FROM rows{where}")


class PostgresPlace(Database):
    shown = "the PostgreSQL table rows"
    binary = "bytea"

    def __init__(self, dsn: str, merge_on: tuple[str, ...] = ()) -> None:
        self.schema = f"s{uuid.uuid4().hex[:12]}"
        self.merge_on = merge_on
        with psycopg.connect(dsn) as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")
        self.dsn = f"{dsn} options=-csearch_path={self.schema}"

    def fenced(self, **more: Any) -> FencedTable:
        given = {"merge_on": self.merge_on, **more}
        return spark_groups.postgres_table(self.dsn, "rows", **given)

    def create(self, schema: pa.Schema) -> None:
        super().create(schema)
        if self.merge_on:
            self.run(
                f"CREATE UNIQUE INDEX ON rows ({', '.join(map(repr, self.merge_on))})".replace(
                    "'", '"'
                )
            )

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def locked(self) -> Iterator[Callable[[], object]]:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("LOCK TABLE spark_groups_fence")
            yield connection.rollback

    def columns(self) -> list[str]:
        statement = (
            "SELECT attname FROM pg_attribute WHERE attrelid = 'rows'::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return [name for (name,) in self.run(statement)]

    def staged(self) -> list[str]:
        statement = (
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'"
            " AND tablename LIKE 'spark-groups-%'"
        )
        return sorted(name for (name,) in self.run(statement))


class SqlitePlace(Database):
    shown = "the SQLite table rows"
    binary = "blob"

    def __init__(self, path: Path) -> None:
        self.path = path

    def fenced(self, **more: Any) -> FencedTable:
        return spark_groups.sqlite_table(self.path, "rows", **more)

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def locked(self) -> Iterator[Callable[[], object]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield connection.rollback

    def columns(self) -> list[str]:
        return [name for (name,) in self.run("SELECT name FROM pragma_table_info('rows')")]

    def staged(self) -> list[str]:
        return sorted(each.stem for each in self.path.parent.glob("*-staged/*"))


class Writer:
    """A driver that writes batches to a table, one step at a time.

    Args:
        place: The place of the table.
        group_id: The driver's group.
    """

    def __init__(self, place: Place, group_id: str = GROUP) -> None:
        self.table: Any = place.fenced()
        self.group_id = group_id
        self._batch = 0

    def look(self, *ranges: OffsetRange) -> None:
        """Compare a batch with the current entries."""
        topics = frozenset(each.topic_id for each in ranges)
        self.state = self.table.read(self.group_id, topics)
        self.decision = compare(self.group_id, ranges, self.state, table=str(self.table))
        self.pieces: list[Piece] | None = None

    def stage(self, schema: pa.Schema = SCHEMA) -> list[Piece]:
        """Stage the rows of the decision, each range by a task of its own."""
        self.attempt = Attempt(self.group_id, self._batch, uuid.uuid4().hex[:12])
        self._batch += 1
        tasks = self.table.task_writer(self.attempt)
        self.pieces = [
            piece
            for index, each in enumerate(self.decision.write)
            for piece in tasks.write([rows(each, schema)], f"{index}-0")
        ]
        return self.pieces

    def commit(self, pieces: Sequence[Piece] | None = None) -> None:
        """Commit pieces; by default those of the decision, which are staged now if they are not."""
        if pieces is None:
            pieces = self.stage() if self.pieces is None else self.pieces
        self.table.commit(self.attempt, pieces, self.decision, self.state)

    def write(self, *ranges: OffsetRange, schema: pa.Schema = SCHEMA) -> Decision:
        """Write a batch."""
        self.look(*ranges)
        if self.decision.write:
            self.stage(schema)
            self.commit()
        return self.decision
