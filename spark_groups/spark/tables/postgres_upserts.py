"""The merge of the staged rows of a batch into a PostgreSQL table: deletes, then the others."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import TableError, needs
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.columns import TableColumns, schema_of_text
from spark_groups.spark.tables.copy_format import Column, columns_of
from spark_groups.spark.tables.postgres_columns import Casts, StagedRows
from spark_groups.spark.tables.postgres_rows import message_of
from spark_groups.spark.tables.table import Piece
from spark_groups.spark.tables.upserts import Upsert, different_columns

with needs("postgres"):
    import psycopg
    from psycopg import sql

_KEYS: Final = """
SELECT pg_catalog.array_agg(a.attname::text) FROM pg_catalog.pg_index i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid"""
"""The columns of each index by which a statement finds the row that it would be a second of."""
_RECORD: Final = """(pg_catalog.concat(topic, '-', partition, ' offset ', "offset") COLLATE "C")"""
_SEVERAL: Final = f"""
WITH staged AS ({{staged}}) SELECT pg_catalog.min({_RECORD}), pg_catalog.max({_RECORD}) FROM staged
GROUP BY {{key}} HAVING pg_catalog.count(DISTINCT (topic, partition)) > 1 LIMIT 1"""
_CHANGES: Final = """
WITH staged AS ({staged}),
changes AS (SELECT DISTINCT ON ({key}) * FROM staged ORDER BY {key}, {order})"""
_DELETE: Final = f"""{_CHANGES}
DELETE FROM {{table}} AS stored USING changes WHERE changes.{{mark}} AND {{same}} AND {{newer}}"""
_INSERT: Final = f"""{_CHANGES}
INSERT INTO {{table}} AS stored ({{names}})
SELECT {{values}} FROM changes WHERE NOT changes.{{mark}}
ON CONFLICT ({{key}}) DO {{update}}"""
_DEFER: Final = sql.SQL("SET CONSTRAINTS ALL DEFERRED").format()
_CHECK: Final = sql.SQL("SET CONSTRAINTS ALL IMMEDIATE").format()
_NEWER: Final = "(stored.{0} IS NULL OR {1}.{0} >= stored.{0})"
_ROW: Final = "ctid"
"""The place of a row in its staging table; no column of a table can have the name."""
_COLUMNS: Final = re.compile(r"\((.+?)\)=\(")
"""The columns in PostgreSQL's `Key (email)=(...) already exists`, without their values."""


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

    def statements(self, *, deletes_first: bool = True) -> list[sql.Composed]:
        """Return the statements that merge the rows, one after the other.

        Args:
            deletes_first: Whether rows are deleted first: others may have their unique values.
        """
        upsert, has = self.upsert, {each.name: each for each in columns_of(self._schema())}
        names = [each for each in has if each not in self.columns.hidden]
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
        parts = {
            "order": _each("{} DESC", order),
            "mark": sql.Identifier(upsert.delete_when),
            "same": _each("stored.{0} = changes.{0}", upsert.merge_on, " AND "),
            "newer": sql.SQL(newer).format(column, sql.SQL("changes")),
            "names": _each("{}", names),
            "values": sql.SQL(", ").join(self._value(has[each], upsert.compared) for each in names),
            "update": update,
        }
        texts = [_INSERT]
        if upsert.delete_when in has:
            texts.insert(0 if deletes_first else 1, _DELETE)
        return [_DEFER, *(self._sql(text, **parts) for text in texts), _CHECK]

    def violation(self, error: psycopg.IntegrityError) -> TableError:
        """Return the error of a constraint that a row of the batch violates.

        Args:
            error: The error of the server, whose values are not shown.
        """
        found = _COLUMNS.search(error.diag.message_detail or "")
        of = f" of {found[1]}" if found else ""
        return TableError(
            f"the batch does not fit {self.name}: {message_of(error)}{of}. If its rows fit only"
            " once all of them are merged, as where two exchange a unique value, add the constraint"
            " again as DEFERRABLE, which has it checked then; else drop it, or change the transform"
        )

    def _schema(self) -> pa.Schema:
        return schema_of_text(self.pieces[0][1].details)

    def _value(self, column: Column, as_staged: Container[str]) -> sql.Composable:
        """Return a column as a value of the table, or as it is."""
        name = sql.Identifier(column.name)
        return name if column.name in as_staged else self.casts.of(column)

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composed:
        """Format a statement about the rows, with keys as the table's, and the mark of deletes."""
        mark = self.upsert.delete_when
        columns = {each.name: each for each in columns_of(self._schema())}
        marked = sql.SQL("coalesce({}, false)" if mark in columns else "false")
        # Other values become those of the table where they are inserted: a domain may refuse the
        # nulls of rows that delete.
        others = {*columns}.difference(self.upsert.compared)
        values: list[sql.Composable] = [
            sql.SQL("{} AS {}").format(self._value(each, others), sql.Identifier(name))
            for name, each in columns.items()
            if name != mark
        ]
        # Rows are in the order in which their task wrote them.
        name = sql.Identifier(mark)
        values += [sql.SQL("{} AS {}").format(marked.format(name), name), sql.Identifier(_ROW)]
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
