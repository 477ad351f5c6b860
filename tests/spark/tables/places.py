"""Databases with one table, which tests read with a client of the database."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

import spark_groups
from spark_groups.spark.tables.fence import Entry, FenceKey
from spark_groups.spark.tables.table import FencedTable


class Place:
    """A database with one table, which tests read with a client of the database."""

    def table(self) -> FencedTable:
        """Return the table as an application opens it."""
        raise NotImplementedError

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        raise NotImplementedError

    def staged(self) -> list[str]:
        """Return the names of staged files or staging tables."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Callable[[], object]]:
        """Keep the fence locked, as a long commit does; yields what ends it."""
        raise NotImplementedError

    def offsets(self, partition: int = 0) -> list[int]:
        statement = f'SELECT "offset" FROM rows WHERE partition = {partition} ORDER BY "offset"'
        return [offset for (offset,) in self.run(statement)]

    def entries(self, group_id: str) -> dict[FenceKey, Entry]:
        return dict(self.table().read(group_id).entries)


class PostgresPlace(Place):
    def __init__(self, dsn: str) -> None:
        self.schema = f"s{uuid.uuid4().hex[:12]}"
        with psycopg.connect(dsn) as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")
        self.dsn = f"{dsn} options=-csearch_path={self.schema}"

    def table(self) -> FencedTable:
        return spark_groups.postgres_table(self.dsn, "rows")

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def locked(self) -> Iterator[Callable[[], object]]:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("LOCK TABLE spark_groups_fence")
            yield connection.rollback

    def staged(self) -> list[str]:
        statement = (
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'"
            " AND tablename LIKE 'spark-groups-%'"
        )
        return sorted(name for (name,) in self.run(statement))


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        self.path = path

    def table(self) -> FencedTable:
        return spark_groups.sqlite_table(self.path, "rows")

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def locked(self) -> Iterator[Callable[[], object]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield connection.rollback

    def staged(self) -> list[str]:
        return sorted(each.stem for each in self.path.parent.glob("*-staged/*"))
