"""The merge of the staged rows of a batch into a PostgreSQL table, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import OptionsError, TableError
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.columns import TableColumns, schema_of_text
from spark_groups.spark.tables.copy_format import columns_of
from spark_groups.spark.tables.postgres_columns import Casts, StagedRows
from spark_groups.spark.tables.table import Piece
from spark_groups.spark.tables.upserts import Upsert, different_columns

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise OptionsError("PostgreSQL needs psycopg: install spark-groups[postgres]") from error

_KEYS: Final = """
SELECT pg_catalog.array_agg(a.attname::text) FROM pg_catalog.pg_index i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid"""
"""The columns of each index by which a statement finds the row that it would be a second of."""
_SEVERAL: Final = """
WITH staged AS ({staged}), records AS (
  SELECT *, pg_catalog.concat(topic, '-', partition, ' offset ', "offset") COLLATE "C" AS record
  FROM staged)
SELECT pg_catalog.min(record), pg_catalog.max(record) FROM records
GROUP BY {key} HAVING pg_catalog.count(DISTINCT (topic, partition)) > 1 LIMIT 1"""
_MERGE: Final = """
WITH staged AS ({staged}),
changes AS MATERIALIZED (SELECT DISTINCT ON ({key}) * FROM staged ORDER BY {key}, {order}),
deleted AS (
  DELETE FROM {table} AS stored USING changes WHERE changes.{mark} AND {same} AND {newer}
)
INSERT INTO {table} AS stored ({names}) SELECT {names} FROM changes WHERE NOT changes.{mark}
ON CONFLICT ({key}) DO {update}"""
_NEWER: Final = "(stored.{0} IS NULL OR {1}.{0} >= stored.{0})"
_ROW: Final = "row of the task"


def check_index(cursor: psycopg.Cursor[Any], oid: int, upsert: Upsert, table: str) -> None:
    """Refuse a table, by its oid, that could have two rows with the same key.

    Raises:
        TableError: No unique index has exactly the columns of the key.
    """
    keys = [{*names} for (names,) in cursor.execute(_KEYS, [oid]).fetchall()]
    if {*upsert.merge_on} not in keys:
        columns = ", ".join(upsert.merge_on)
        raise TableError(
            f"{table} has no primary key or unique index of exactly {columns}, the columns of"
            f" merge_on: CREATE UNIQUE INDEX ON ... ({columns})"
        )


@dataclass(frozen=True, slots=True)
class PostgresMerge:
    """The merge of a batch.

    Args:
        name: The name of the table in errors.
        table: The table.
        upsert: How rows change it.
        columns: The columns in which rows are staged.
        casts: How the table takes them.
        pieces: The staged rows: the staging table and the piece of each task.
    """

    name: str
    table: sql.Identifier
    upsert: Upsert
    columns: TableColumns
    casts: Casts
    pieces: Sequence[tuple[sql.Identifier, Piece]]

    def staged(self, cursor: psycopg.Cursor[Any]) -> list[StagedRows]:
        """Return the staged rows.

        Raises:
            TableError: Rows are missing, or their columns differ or have wrong types.
        """
        schema = self._schema()
        if any(schema_of_text(piece.details) != schema for _, piece in self.pieces):
            raise TableError(different_columns(self.name))
        self.upsert.check(schema)
        columns = columns_of(schema)
        found = [StagedRows(self.name, cursor, at, columns, each.rows) for at, each in self.pieces]
        for rows in found:
            rows.check_there()
        return found

    def check_order(self, cursor: psycopg.Cursor[Any]) -> None:
        """Refuse a key with rows of several partitions, unless a column orders them.

        Raises:
            TableError: There is one.
        """
        if self.upsert.order_by is None:
            cursor.execute(self._sql(_SEVERAL))
            if records := cursor.fetchone():
                raise TableError(self.upsert.several_partitions(self.name, records))

    def statement(self) -> sql.Composed:
        """Return the statement that merges the rows."""
        upsert = self.upsert
        names = [each for each in self._schema().names if each not in self.columns.hidden]
        newer, order = "true", [*PLACE, _ROW]
        if upsert.order_by is not None:
            newer, order = _NEWER, [upsert.order_by, *order]
        column = sql.Identifier(upsert.order_by or "")
        update: sql.Composable = sql.SQL("NOTHING")
        if values := [each for each in names if each not in upsert.merge_on]:
            update = sql.SQL("UPDATE SET {} WHERE {}").format(
                _each("{0} = excluded.{0}", values),
                sql.SQL(newer).format(column, sql.SQL("excluded")),
            )
        return self._sql(
            _MERGE,
            order=_each("{} DESC", order),
            mark=sql.Identifier(upsert.delete_when),
            same=_each("stored.{0} = changes.{0}", upsert.merge_on, " AND "),
            newer=sql.SQL(newer).format(column, sql.SQL("changes")),
            names=_each("{}", names),
            update=update,
        )

    def _schema(self) -> pa.Schema:
        return schema_of_text(self.pieces[0][1].details)

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composed:
        """Format a statement about the rows as values of the table, with the mark of deletes."""
        mark = self.upsert.delete_when
        columns = {each.name: each for each in columns_of(self._schema())}
        marked = sql.SQL("coalesce({}, false)" if mark in columns else "false")
        values = [
            sql.SQL("{} AS {}").format(self.casts.of(each), sql.Identifier(name))
            for name, each in columns.items()
            if name != mark
        ]
        # Rows are in the order in which their task wrote them.
        row = sql.SQL("ctid AS {}").format(sql.Identifier(_ROW))
        name = sql.Identifier(mark)
        values += [sql.SQL("{} AS {}").format(marked.format(name), name), row]
        select = sql.SQL("SELECT {} FROM {}")
        joined = sql.SQL(", ").join(values)
        return sql.SQL(text).format(
            table=self.table,
            staged=sql.SQL(" UNION ALL ").join(select.format(joined, at) for at, _ in self.pieces),
            key=_each("{}", self.upsert.merge_on),
            **parts,
        )


def _each(text: str, names: Sequence[str], joined: str = ", ") -> sql.Composed:
    return sql.SQL(joined).join(sql.SQL(text).format(sql.Identifier(each)) for each in names)
