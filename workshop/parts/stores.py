"""Tables of each kind that hold rows of any columns, and give them back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from spark_groups.errors import TableError
from spark_groups.spark.tables.column_types import MICROS, MICROS_UTC
from spark_groups.spark.tables.table import FencedTable
from workshop.fuzz.rows import Case, of_values


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
        import deltalake

        try:
            columns = deltalake.Schema.from_arrow(schema)
            deltalake.DeltaTable.create(self.path, columns, partition_by=[*partition_by])
        except Exception:
            return False
        return True

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""
        from spark_groups.spark.tables.delta import delta_table

        return delta_table(self.path, partition_by=partition_by)

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that Delta does not have."""
        del case
        return False

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""
        import deltalake

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
        from pyiceberg.catalog.sql import SqlCatalog

        self.path.mkdir(exist_ok=True)
        return SqlCatalog(
            "fuzz", uri=f"sqlite:///{self.path}/catalog.db", warehouse=f"file://{self.path}"
        )

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""
        try:
            catalog = self._catalog
            catalog.create_namespace_if_not_exists("lake")
            table = catalog.create_table("lake.t", schema)
            with table.update_spec() as spec:
                for each in partition_by:
                    spec.add_identity(each)
        except Exception:
            return False
        return True

    def table(self, partition_by: Sequence[str]) -> FencedTable:
        """Return the table for its writer."""
        from spark_groups.spark.tables.iceberg import iceberg_table

        return iceberg_table("lake.t", self._catalog, partition_by=partition_by)

    def refuses(self, case: Case) -> bool:
        """Return whether rows of plain types have a value that Iceberg does not have."""
        del case
        return False

    def rows(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what each reader finds, with its name."""
        from pyarrow import parquet

        scan = self._catalog.load_table("lake.t").scan()
        # Its to_arrow() fails at a table without rows that has a column of UUIDs.
        yield "pyiceberg", scan.to_arrow_batch_reader().read_all()
        paths = [each.file.file_path.removeprefix("file://") for each in scan.plan_files()]
        tables = [parquet.read_table(path, partitioning=None) for path in paths]
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
        import psycopg

        with psycopg.connect(self._dsn) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> bool:
        """Create a table; return whether it can have these columns."""
        from psycopg import Error, sql

        from spark_groups.spark.tables.columns import TableColumns
        from spark_groups.spark.tables.copy_format import POSTGRES, columns_of

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
        from spark_groups.spark.tables.postgres import postgres_table

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
        from psycopg import sql

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
