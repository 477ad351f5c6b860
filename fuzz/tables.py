"""Random rows for real tables: they come back equal from each reader, or are refused by name.

An input is a seed: it draws columns of all of Arrow's types, values, and a table that nearly fits
them. What is expected is computed from the rows alone, not by the converter of this package.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import random
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from fuzz.rows import Case, drawn_case, of_values, rows_as_text
from spark_groups.errors import TableError
from spark_groups.spark.tables.column_types import MICROS, MICROS_UTC
from spark_groups.spark.tables.fence import Decision, TableState
from spark_groups.spark.tables.table import Attempt, FencedTable

_ATTEMPT: Final = Attempt("g", 0, "a")


class Store(Protocol):
    """One kind of table, in a directory or a database of its own."""

    name: str

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that this kind of table does not have."""

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""


def play(store: Store, case: Case) -> str:
    """Write a case to a table of its own, and read it; return how it ended.

    Args:
        store: An empty place for a table.
        case: The case.

    Raises:
        AssertionError: Rows differ, or were refused without a reason.
    """
    if case.existing is not None and not store.create(case.existing, case.partition_by):
        return "no such table"
    table = store.table(case.partition_by)
    try:
        state: TableState = table.read("g")
    except TableError:
        # It has a feature, such as nanoseconds, that this writer does not have.
        return "no such table"
    try:
        pieces = [*table.task_writer(_ATTEMPT).write(case.batches, "0")]
        table.commit(_ATTEMPT, pieces, Decision(), state)
    except TableError as error:
        names = {name for each in case.batches for name in each.schema.names}
        names |= {*case.partition_by, *(() if case.existing is None else case.existing.names)}
        if case.is_plain and not store.refuses(case):
            raise AssertionError(f"{store.name} refused plain rows: {error}") from error
        if not any(name in str(error) for name in names if name) and "" not in names:
            raise AssertionError(f"{store.name} named no column: {error}") from error
        return "refused"
    blank = case.partition_by if isinstance(store, DeltaStore) else ()
    for reader, found in store.rows():
        # pyiceberg 0.12 returns an empty list for a null list of structs.
        is_exact = reader != "pyiceberg"
        wanted = rows_as_text(case.batches, blank, is_exact=is_exact)
        has = rows_as_text(found, (), is_exact=is_exact)
        if has != wanted:
            raise AssertionError(f"{reader} read {has}, not {wanted}")
    return "equal"


@dataclass
class DeltaStore:
    """A Delta table in a directory.

    Args:
        path: The directory.
    """

    path: Path
    name: str = "Delta"

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""
        import deltalake  # noqa: PLC0415

        try:
            columns = deltalake.Schema.from_arrow(schema)
            deltalake.DeltaTable.create(self.path, columns, partition_by=[*partition_by])
        except Exception:
            return False
        return True

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""
        from spark_groups.spark.tables.delta import delta_table  # noqa: PLC0415

        return delta_table(self.path, partition_by=partition_by)

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that Delta does not have."""
        del case
        return False

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""
        import deltalake  # noqa: PLC0415

        table = deltalake.DeltaTable(self.path)
        yield "deltalake", table.to_pyarrow_table()
        query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
        yield "DataFusion", pa.table(query.read_all())


@dataclass
class IcebergStore:
    """An Iceberg table in a directory, with a catalog in SQLite.

    Args:
        path: The directory.
    """

    path: Path
    name: str = "Iceberg"

    @property
    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415

        self.path.mkdir(exist_ok=True)
        return SqlCatalog(
            "fuzz", uri=f"sqlite:///{self.path}/catalog.db", warehouse=f"file://{self.path}"
        )

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""
        if partition_by:
            return False
        try:
            catalog = self._catalog
            catalog.create_namespace_if_not_exists("lake")
            catalog.create_table("lake.t", schema)
        except Exception:
            return False
        return True

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""
        from spark_groups.spark.tables.iceberg import iceberg_table  # noqa: PLC0415

        del partition_by
        return iceberg_table("lake.t", self._catalog)

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that Iceberg does not have."""
        del case
        return False

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""
        from pyarrow import parquet  # noqa: PLC0415

        scan = self._catalog.load_table("lake.t").scan()
        # Its to_arrow() fails at a table without rows that has a column of UUIDs.
        yield "pyiceberg", scan.to_arrow_batch_reader().read_all()
        paths = [each.file.file_path.removeprefix("file://") for each in scan.plan_files()]
        tables = [parquet.read_table(each, partitioning=None) for each in paths]
        if tables:
            yield "the files", pa.concat_tables(tables, promote_options="permissive")


@dataclass
class PostgresStore:
    """A PostgreSQL table in a schema of its own.

    Args:
        dsn: How the server is reached.
        schema: The schema, which is made and dropped.
        is_varied: Whether columns of a table get types that rows fit nearly.
    """

    dsn: str
    schema: str
    is_varied: bool = True
    name: str = "PostgreSQL"

    @property
    def _dsn(self) -> str:
        return f"{self.dsn} options=-csearch_path={self.schema}"

    def run(self, statement: Any) -> list[tuple[Any, ...]]:
        """Run a statement."""
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self._dsn) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""
        from psycopg import Error, sql  # noqa: PLC0415

        from spark_groups.spark.tables.columns import TableColumns  # noqa: PLC0415
        from spark_groups.spark.tables.copy_format import POSTGRES, columns_of  # noqa: PLC0415

        if partition_by:
            return False
        chance = random.Random(str(schema))
        narrower = {
            "text": ("text", "varchar(3)", "char(3)", "jsonb", "uuid", "inet"),
            "timestamp without time zone": ("timestamp(3)", "timestamp"),
            "bigint": ("bigint", "numeric", "numeric(30,5)", "bigint[]"),
            "numeric(10,2)": ("numeric", "numeric(5,1)"),
        }
        try:
            columns = columns_of(TableColumns("t", POSTGRES).check(schema))
            fields = [
                sql.SQL("{} {} {}").format(
                    sql.Identifier(each.name),
                    sql.SQL(
                        chance.choice(narrower.get(each.table_type, (each.table_type,)))
                        if self.is_varied
                        else each.table_type
                    ),
                    sql.SQL("" if field.nullable else "NOT NULL"),
                )
                for each, field in zip(columns, schema, strict=True)
            ]
            self.run(sql.SQL("CREATE TABLE t ({})").format(sql.SQL(", ").join(fields)))
        except (TableError, Error):
            return False
        return True

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""
        from spark_groups.spark.tables.postgres import postgres_table  # noqa: PLC0415

        del partition_by
        return postgres_table(self._dsn, "t")

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that PostgreSQL does not have."""
        years = {pa.date32(): (-2_440_588, 2_145_031_948)}
        micros = -2_440_588 * 86_400_000_000, 9_223_371_331_200_000_000 - 1
        years |= dict.fromkeys((pa.timestamp("us"), pa.timestamp("us", "UTC")), micros)
        for batch in case.batches:
            for column in batch.columns:
                values = [each.value for each in column if hasattr(each, "value") and each.is_valid]
                low, high = years.get(column.type, (None, None))
                if low is not None and any(not low <= each <= high for each in values):
                    return True
                if column.type == pa.string() and "\0" in "".join(filter(None, column.to_pylist())):
                    return True
        return False

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""
        from psycopg import sql  # noqa: PLC0415

        found = self.run(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            f" WHERE attrelid = '{self.schema}.t'::regclass AND attnum > 0"
        )
        epoch = "({} - '1970-01-01'::date)::int"
        micros = "(extract(epoch FROM {}) * 1000000)::bigint"
        as_arrow = {
            "date": (epoch, pa.date32()),
            "timestamp without time zone": (micros, MICROS),
            "timestamp with time zone": (micros, MICROS_UTC),
            "time without time zone": (micros, pa.time64("us")),
            "real": ("{}::float8", pa.float64()),
            "uuid": ("uuid_send({})", pa.binary()),
            "jsonb": ("{}::text", pa.string()),
            # It is filled with blanks, which its text does not have.
            "character": ("{}::text", pa.string()),
            "inet": ("{}::text", pa.string()),
        }
        selected = [
            sql.SQL(as_arrow.get(kind, ("{}", None))[0]).format(sql.Identifier(name))
            for name, kind in found
        ]
        rows = self.run(sql.SQL("SELECT {} FROM t").format(sql.SQL(", ").join(selected)))
        arrays = []
        for index, (_, kind) in enumerate(found):
            column = as_arrow.get(kind, ("", None))[1]
            values = [row[index] for row in rows]
            arrays.append(pa.array(values) if column is None else of_values(values, column))
        yield "SQL", pa.Table.from_arrays(arrays, names=[name for name, _ in found])


@cache
def _server() -> str:
    """Start a PostgreSQL that ends with this process; return how it is reached."""
    from chaos.systems.postgres import running_postgres  # noqa: PLC0415

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_postgres())


def _quiet() -> None:
    """Drop the libraries' warnings, of which each case may cause some."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def feed_delta(seed: bytes) -> None:
    """Play a case with a Delta table.

    Args:
        seed: Any bytes.
    """
    _in_a_directory(DeltaStore, seed)


def feed_iceberg(seed: bytes) -> None:
    """Play a case with an Iceberg table.

    Args:
        seed: Any bytes.
    """
    _in_a_directory(IcebergStore, seed)


def _in_a_directory(store: Callable[[Path], Store], seed: bytes) -> None:
    _quiet()
    with tempfile.TemporaryDirectory() as directory:
        play(store(Path(directory) / "t"), drawn_case(seed))


def feed_postgres(seed: bytes) -> None:
    """Play a case with a PostgreSQL table.

    Args:
        seed: Any bytes.
    """
    import psycopg  # noqa: PLC0415

    _quiet()
    schema = f"s{uuid.uuid4().hex[:12]}"
    with psycopg.connect(_server(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            play(PostgresStore(_server(), schema), drawn_case(seed))
        finally:
            connection.execute("SET client_min_messages = error")
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def seeds() -> list[bytes]:
    """Return inputs from which others are drawn."""
    return [b"%d" % number for number in range(40)]
