"""The tables of a run: members open them, and another client reads them at the end."""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_groups.cli.table_names import TableKind
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece, TaskWriter
from spark_groups.spark.tables.upserts import Upsert
from spark_groups.types import TopicId
from workshop.chaos.results.account import SinkRow
from workshop.chaos.systems.record import is_right
from workshop.chaos.systems.sinks import SCHEMA
from workshop.chaos.systems.upserted import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SINKS: Final = "SPARK_GROUPS_CHAOS_SINKS"
"""The environment variable with the kinds of a run's tables, separated by commas."""
ICEBERG_NAME: Final = "lake.rows"
PARTITION_BY: Final[Mapping[TableKind, Sequence[str]]] = {
    TableKind.DELTA: ("topic", "partition"),
    TableKind.ICEBERG: ("topic", "bucket(4, offset)"),
}
"""What the partitioned tables of a run are partitioned by."""
_COLUMNS: Final = ", ".join(f'"{name}"' for name in SCHEMA.names)
USE_POSTGRES: Final = (TableKind.POSTGRES, TableKind.ICEBERG)
"""The kinds that need PostgreSQL; Iceberg has its catalog there."""
IN_COMMIT: Final[Mapping[TableKind, str]] = {
    TableKind.SQLITE: "_add",
    TableKind.POSTGRES: "_move",
    TableKind.ICEBERG: "_stage",
    TableKind.DELTA: "_write_checkpoint",
}
"""A step of each kind's commit: in its transaction, or, for Delta, after the new log entry."""


class Form(str, Enum):
    """What tables a run has that are not plain ones."""

    PARTITIONED = "partitioned"
    UPSERTS = "upserts"
    ROUTES = "routes"


class WrappedTable:
    """A table that does what another one does, unless a subclass says otherwise.

    Args:
        table: The other one.
    """

    def __init__(self, table: FencedTable) -> None:
        self._table = table

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return str(self._table)

    @property
    def keeps_letters(self) -> bool:
        """Whether it keeps dead letters."""
        return self._table.keeps_letters

    @property
    def upsert(self) -> Upsert | None:
        """How rows change others."""
        return self._table.upsert

    def check(self) -> TableColumns | None:
        """Look at the table."""
        return self._table.check()

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the fence."""
        return self._table.read(group_id, topic_ids)

    def task_writer(self, attempt: Attempt) -> TaskWriter:
        """Return the task writer."""
        return self._table.task_writer(attempt)

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage rows."""
        return self._table.write_rows(rows, attempt)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Commit staged rows."""
        self._table.commit(attempt, pieces, decision, state)


@dataclass(frozen=True, slots=True)
class Places:
    """The places of tables.

    Args:
        directory: The directory of files, with the SQLite database.
        postgres: The connection string of PostgreSQL; None: there is no server.
        is_partitioned: Whether tables are partitioned, of the kinds that can be.
    """

    directory: Path
    postgres: str | None = None
    is_partitioned: bool = False

    @property
    def sqlite(self) -> Path:
        """The file of the SQLite database."""
        return self.directory / "rows.sqlite"

    @property
    def delta(self) -> Path:
        """The directory of the Delta table."""
        return self.directory / "delta"

    @property
    def upserted(self) -> Path:
        """The directory of the Delta table with one row for each key."""
        return self.directory / "upserted"

    def routed(self, topic: str) -> Path:
        """Return the directory of the Delta table that a route gives a topic.

        Args:
            topic: The topic.
        """
        return self.directory / "routed" / topic

    def partition_by(self, kind: TableKind) -> Sequence[str]:
        """Return what a table is partitioned by.

        Args:
            kind: The kind of the table.
        """
        return PARTITION_BY[kind] if self.is_partitioned else ()

    @property
    def catalog(self) -> Mapping[str, str]:
        """The properties of Iceberg's catalog, which is in PostgreSQL."""
        import psycopg  # noqa: PLC0415

        given = psycopg.conninfo.conninfo_to_dict(self.postgres or "")
        server = f"{given['user']}@/{given['dbname']}?host={given['host']}"
        return {
            "type": "sql",
            "uri": f"postgresql+psycopg://{server}",
            "warehouse": (self.directory / "iceberg").as_uri(),
        }


def open_table(kind: TableKind, places: Places) -> FencedTable:
    """Return a table as an application opens it.

    Args:
        kind: The kind of the table.
        places: The places of tables.
    """
    import spark_groups  # noqa: PLC0415

    match kind:
        case TableKind.SQLITE:
            return spark_groups.sqlite_table(places.sqlite, "rows")
        case TableKind.DELTA:
            return spark_groups.delta_table(places.delta, partition_by=places.partition_by(kind))
        case TableKind.POSTGRES:
            return spark_groups.postgres_table(str(places.postgres), "rows")
        case TableKind.ICEBERG:
            return spark_groups.iceberg_table(
                *(ICEBERG_NAME, "chaos", places.catalog), partition_by=places.partition_by(kind)
            )


def open_upserted(places: Places) -> FencedTable:
    """Return the Delta table with one row for each key, as an application opens it.

    Args:
        places: The places of tables.
    """
    import spark_groups  # noqa: PLC0415

    return spark_groups.delta_table(places.upserted, **OPTIONS)


def open_routed(places: Places, topic: str) -> FencedTable:
    """Return the Delta table that a route gives a topic, as an application opens it.

    Args:
        places: The places of tables.
        topic: The topic.
    """
    import spark_groups  # noqa: PLC0415

    return spark_groups.delta_table(places.routed(topic))


def command_name(kind: TableKind, places: Places) -> str | None:
    """Return the name of a table in commands; None: its catalog has no name.

    Args:
        kind: The kind of the table.
        places: The places of tables.
    """
    names = {
        TableKind.SQLITE: f"sqlite:{places.sqlite}#rows",
        TableKind.DELTA: f"delta:{places.delta}",
        TableKind.POSTGRES: f"postgres:{places.postgres}#rows",
    }
    return names.get(kind)


def reach_in_commit(table: Any, kind: TableKind, reached: Callable[[], None]) -> None:
    """Make each commit of a table call a function in the middle.

    Args:
        table: From `open_table`.
        kind: Its kind.
        reached: The function to call.
    """
    name = IN_COMMIT[kind]
    step = getattr(table, name)

    def wrapped(*args: Any) -> Any:
        found = step(*args)
        reached()
        return found

    setattr(table, name, wrapped)


def table_rows(kind: TableKind, places: Places) -> Iterator[SinkRow]:
    """Return the rows of a table, read by a client that is not this package.

    Args:
        kind: The kind of the table.
        places: The places of tables.
    """
    for execution, topic, partition, offset, value in _READERS[kind](places):
        right = is_right(value, topic, partition, offset)
        yield SinkRow(execution, topic, partition, offset, right)


def delete_rows(
    kind: TableKind, places: Places, partition: tuple[str, int], from_offset: int
) -> None:
    """Delete the rows of a partition from an offset on, as somebody does by hand.

    Args:
        kind: The kind of the table.
        places: The places of tables.
        partition: The topic and the index.
        from_offset: The offset.
    """
    topic, index = partition
    where = f"""topic = '{topic}' AND "partition" = {index} AND "offset" >= {from_offset}"""
    match kind:
        case TableKind.SQLITE:
            with closing(sqlite3.connect(places.sqlite)) as connection, connection:
                connection.execute(f"DELETE FROM rows WHERE {where}")
        case TableKind.DELTA:
            import deltalake  # noqa: PLC0415

            deltalake.DeltaTable(places.delta).delete(where)
        case TableKind.POSTGRES:
            import psycopg  # noqa: PLC0415

            with psycopg.connect(str(places.postgres)) as server:
                server.execute(f"DELETE FROM rows WHERE {where}")
        case TableKind.ICEBERG:
            raise NotImplementedError("its catalog has no name in commands")


def _sqlite_rows(places: Places) -> Iterator[tuple[Any, ...]]:
    with closing(sqlite3.connect(places.sqlite)) as connection:
        yield from connection.execute(f"SELECT {_COLUMNS} FROM rows")


def _delta_rows(places: Places) -> Iterator[tuple[Any, ...]]:
    import deltalake  # noqa: PLC0415

    return _arrow_rows(deltalake.DeltaTable(places.delta).to_pyarrow_dataset().to_batches())


def _postgres_rows(places: Places) -> Iterator[tuple[Any, ...]]:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(str(places.postgres)) as connection, connection.cursor("rows") as cursor:
        yield from cursor.execute(f"SELECT {_COLUMNS} FROM rows")


def _iceberg_rows(places: Places) -> Iterator[tuple[Any, ...]]:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415

    table = load_catalog("chaos", **places.catalog).load_table(ICEBERG_NAME)
    return _arrow_rows(table.scan().to_arrow_batch_reader())


def _arrow_rows(batches: Any) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in SCHEMA.names)
        yield from zip(*columns, strict=True)


_READERS: Final[Mapping[TableKind, Callable[[Places], Iterator[tuple[Any, ...]]]]] = {
    TableKind.SQLITE: _sqlite_rows,
    TableKind.DELTA: _delta_rows,
    TableKind.POSTGRES: _postgres_rows,
    TableKind.ICEBERG: _iceberg_rows,
}


def import_kinds() -> None:
    """Import the libraries of the run's tables before members are forked."""
    for name in filter(None, os.environ.get(SINKS, "").split(",")):
        importlib.import_module(f"spark_groups.spark.tables.{TableKind(name).value}")
        if TableKind(name) is TableKind.ICEBERG:
            importlib.import_module("pyiceberg.catalog.sql")
