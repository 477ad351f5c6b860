"""The merge of the staged rows of a batch into a PostgreSQL table, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.errors import OptionsError, TableError
from spark_groups.spark.tables.columns import TableColumns, schema_of_text
from spark_groups.spark.tables.copy_format import columns_of
from spark_groups.spark.tables.postgres_columns import StagedRows, Targets
from spark_groups.spark.tables.table import Piece
from spark_groups.spark.tables.upserts import PLACE, Upsert

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
WITH staged AS ({staged})
SELECT pg_catalog.min({record} COLLATE "C"), pg_catalog.max({record} COLLATE "C") FROM staged
GROUP BY {key} HAVING pg_catalog.count(DISTINCT ({partition})) > 1 LIMIT 1"""
_MERGE: Final = """
WITH staged AS ({staged}),
changes AS MATERIALIZED (SELECT DISTINCT ON ({key}) * FROM staged ORDER BY {key}, {order}),
deleted AS (
  DELETE FROM {table} AS stored USING changes WHERE changes.{mark} AND {same} AND {newer}
)
INSERT INTO {table} AS stored ({names}) SELECT {names} FROM changes WHERE NOT changes.{mark}
ON CONFLICT ({key}) DO {update}"""
_ROW: Final = "row of the task"


def check_index(cursor: psycopg.Cursor[Any], oid: int, upsert: Upsert, table: str) -> None:
    """Refuse a table that could have two rows with the same key.

    Args:
        cursor: The cursor of a transaction.
        oid: The oid of the table.
        upsert: How rows change it.
        table: Its name in errors.

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
        targets: How the table takes them.
        staged: The staging tables: the place and the piece of each.
    """

    name: str
    table: sql.Identifier
    upsert: Upsert
    columns: TableColumns
    targets: Targets
    staged: Sequence[tuple[sql.Identifier, Piece]]

    def pieces(self, cursor: psycopg.Cursor[Any]) -> list[StagedRows]:
        """Return the staged rows.

        Args:
            cursor: The cursor of the transaction.

        Raises:
            TableError: Rows are missing, or tasks have staged different columns, or types are
                wrong.
        """
        schema = schema_of_text(self.staged[0][1].details)
        if any(schema_of_text(piece.details) != schema for _, piece in self.staged):
            raise TableError(
                f"tasks staged different columns for {self.name}: change the transform"
            )
        self.upsert.check(schema)
        columns = columns_of(schema)
        found = [
            StagedRows(self.name, cursor, place, columns, piece.rows)
            for place, piece in self.staged
        ]
        for rows in found:
            rows.check_there()
        return found

    def check_order(self, cursor: psycopg.Cursor[Any]) -> None:
        """Refuse a key with rows of several partitions, unless a column orders them.

        Args:
            cursor: The cursor of the transaction.

        Raises:
            TableError: There is one.
        """
        if self.upsert.order_by is not None:
            return
        record = sql.SQL("({} || '-' || {} || ' offset ' || {})")
        cursor.execute(
            self._sql(
                _SEVERAL,
                record=record.format(*map(sql.Identifier, PLACE)),
                partition=_names(["topic", "partition"]),
            )
        )
        if records := cursor.fetchone():
            raise TableError(self.upsert.several_partitions(self.name, records))

    def statement(self) -> sql.Composed:
        """Return the statement that merges the rows."""
        upsert = self.upsert
        names = [each for each in self._staged_names() if each not in self.columns.hidden]
        newer: sql.Composable = sql.SQL("true")
        order = [*([upsert.order_by] if upsert.order_by else []), *PLACE, _ROW]
        condition: sql.Composable = sql.SQL("")
        if upsert.order_by is not None:
            column = sql.Identifier(upsert.order_by)
            is_newer = sql.SQL("(stored.{0} IS NULL OR {1}.{0} >= stored.{0})")
            newer = is_newer.format(column, sql.SQL("changes"))
            condition = sql.SQL(" WHERE {}").format(is_newer.format(column, sql.SQL("excluded")))
        update: sql.Composable = sql.SQL("NOTHING")
        if values := [each for each in names if each not in upsert.merge_on]:
            sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(each)) for each in values]
            update = sql.SQL("UPDATE SET {}{}").format(sql.SQL(", ").join(sets), condition)
        same = [
            sql.SQL("stored.{0} = changes.{0}").format(sql.Identifier(each))
            for each in upsert.merge_on
        ]
        return self._sql(
            _MERGE,
            order=sql.SQL(", ").join(
                sql.SQL("{} DESC").format(sql.Identifier(each)) for each in order
            ),
            mark=sql.Identifier(upsert.delete_when),
            same=sql.SQL(" AND ").join(same),
            newer=newer,
            names=_names(names),
            update=update,
        )

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(
            table=self.table,
            staged=sql.SQL(" UNION ALL ").join(map(self._select, self.staged)),
            key=_names(self.upsert.merge_on),
            **parts,
        )

    def _staged_names(self) -> list[str]:
        return [*schema_of_text(self.staged[0][1].details).names]

    def _select(self, staged: tuple[sql.Identifier, Piece]) -> sql.Composed:
        """Return the rows of a task as values of the table, and the mark of deletes."""
        place, piece = staged
        mark = sql.Identifier(self.upsert.delete_when)
        columns = columns_of(schema_of_text(piece.details))
        values = [
            sql.SQL("{} AS {}").format(self.targets.cast(each), sql.Identifier(each.name))
            for each in columns
            if each.name != self.upsert.delete_when
        ]
        marked: sql.Composable = sql.SQL("false")
        if self.upsert.delete_when in (each.name for each in columns):
            marked = sql.SQL("coalesce({}, false)").format(mark)
        values.append(sql.SQL("{} AS {}").format(marked, mark))
        # Rows are in the order in which the task wrote them.
        values.append(sql.SQL("ctid AS {}").format(sql.Identifier(_ROW)))
        return sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(values), place)


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
