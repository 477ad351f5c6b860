"""The columns of a PostgreSQL table, and the Arrow types that each takes exactly.

The casts of the server lose things: numbers are rounded, and a time without a zone gets
that of the session. So its own casts decide nothing: a value goes through one only where it comes
back from it the same, or where the server validates text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import pyarrow as pa

from spark_groups.errors import TableError, needs
from spark_groups.spark.tables.column_types import MICROS, MICROS_UTC
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.copy_format import LISTED, POSTGRES, Column
from spark_groups.spark.tables.postgres_rows import message_of

with needs("postgres"):
    import psycopg
    from psycopg import errors, sql

FIND_COLUMNS: Final = """
WITH RECURSIVE level AS (
  SELECT a.attnum, a.attname::text AS name, a.atttypid AS typid, a.atttypmod AS typmod,
    a.attnotnull AS needed
  FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT l.attnum, l.name, t.typbasetype,
    CASE WHEN t.typtypmod = -1 THEN l.typmod ELSE t.typtypmod END, l.needed OR t.typnotnull
  FROM level l JOIN pg_catalog.pg_type t ON t.oid = l.typid WHERE t.typtype = 'd'
)
SELECT l.name, pg_catalog.format_type(a.atttypid, a.atttypmod), t.typname::text, t.typtype::text,
  l.typmod, e.typname::text, e.typtype::text, l.needed OR t.typnotnull,
  a.atthasdef OR a.attidentity <> '' OR column_type.typdefault IS NOT NULL,
  a.attgenerated <> '' OR a.attidentity = 'a'
FROM level l
JOIN pg_catalog.pg_type t ON t.oid = l.typid AND t.typtype <> 'd'
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
JOIN pg_catalog.pg_attribute a ON a.attrelid = %(oid)s AND a.attnum = l.attnum
JOIN pg_catalog.pg_type column_type ON column_type.oid = a.atttypid
ORDER BY l.attnum"""
"""The columns of a table: the base type of a domain of domains, and whether any forbids nulls."""

_TEXT: Final = pa.string()
_TAKEN: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "bool": (pa.bool_(),),
    "int2": (pa.int16(),),
    "int4": (pa.int32(),),
    "int8": (pa.int64(),),
    "float4": (pa.float32(),),
    "float8": (pa.float64(),),
    "text": (_TEXT,),
    "varchar": (_TEXT,),
    "bpchar": (_TEXT,),
    "bytea": (pa.binary(),),
    "date": (pa.date32(),),
    "time": (pa.time64("us"),),
    "timestamp": (MICROS,),
    "timestamptz": (MICROS_UTC,),
    "uuid": (pa.uuid(), _TEXT),
    **dict.fromkeys(("json", "jsonb", "citext", "inet", "cidr", "macaddr", "macaddr8"), (_TEXT,)),
}
"""The Arrow types that a column of each base type takes."""
_VALIDATED: Final = frozenset({"json", "jsonb", "citext", "inet", "cidr", "macaddr", "macaddr8"})
"""Types whose text the server validates, and may write in another way."""
_ROW: Final = "ctid"
"""The number of a staged row; no column of a table can have the name."""
_LENGTH: Final = 4
"""What PostgreSQL adds to the length in the modifier of a type."""


@dataclass(frozen=True, slots=True)
class Casts:
    """How the columns of a table take staged values.

    Args:
        types: The SQL type of each column that rows may have.
        compared: The columns whose type may change a value, which is therefore compared.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()

    def of(self, column: Column) -> sql.Composed:
        """Return a staged column as a value of the table's.

        Args:
            column: The staged column.
        """
        wanted = self.types.get(column.name, column.table_type)
        return sql.SQL("{}::{}").format(sql.Identifier(column.name), sql.SQL(wanted))


def columns_of_table(table: str, found: Iterable[Sequence[Any]]) -> tuple[TableColumns, Casts]:
    """Return the columns of a table, to which rows are fitted, and how they take values.

    Args:
        table: The name of the table in errors.
        found: What `FIND_COLUMNS` returns.
    """
    fields, others, lengths, not_written, shown = [], {}, {}, {}, {}
    with_default, decimals, compared = set(), set(), set()
    for name, text, base, kind, modifier, element, element_kind, needed, default, computed in found:
        taken = _taken(base, kind, modifier, element, element_kind)
        shown[name] = text
        if default:
            with_default.add(name)
        if computed or not taken:
            not_written[name] = (
                "is computed by the table"
                if computed
                else f"is {text}, which this writer does not fill: write text into a text column,"
                " and have the table compute this one from it"
            )
            if computed or default or not needed:
                continue
        fields.append(pa.field(name, (taken or (pa.null(),))[-1], not needed))
        others[name] = taken[:-1]
        if base == "numeric" and modifier < 0:
            decimals.add(name)
        if base in {"varchar", "bpchar"} and modifier >= 0:
            lengths[name] = modifier - _LENGTH
        is_validated = base in _VALIDATED or kind == "e" or base == "uuid"
        if modifier >= 0 and not is_validated:
            compared.add(name)
    columns = TableColumns(
        table,
        POSTGRES,
        pa.schema(fields),
        others=others,
        with_default=frozenset(with_default),
        not_written=not_written,
        shown=shown,
        text_length_max=lengths,
        any_decimal=frozenset(decimals),
    )
    return columns, Casts(shown, frozenset(compared))


def _taken(
    base: str, kind: str, modifier: int, element: str | None, element_kind: str | None
) -> tuple[pa.DataType, ...]:
    """Return the Arrow types that a column takes, the widest one last; none: it takes none."""
    if element is not None:
        inner = _taken(element, element_kind or "", -1, None, None)
        listed = [each for each in inner if each in LISTED]
        return tuple(pa.list_(pa.field("element", each)) for each in listed)
    if kind == "e":
        return (_TEXT,)
    if base == "numeric":
        return _decimals(modifier)
    return _TAKEN.get(base, ())


def _decimals(modifier: int) -> tuple[pa.DataType, ...]:
    if modifier < 0:
        return (pa.decimal128(38, 0),)
    precision = ((modifier - _LENGTH) >> 16) & 0xFFFF
    scale = (modifier - _LENGTH) & 0x7FF
    if scale > min(precision, 38):
        # A negative scale rounds before the point, one above the precision has only zeros there.
        return ()
    return (pa.decimal128(min(precision, 38), scale),)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of a staging table, whose values are tried before they move to the table.

    Args:
        table: The name of the table in errors.
        cursor: That of the transaction which moves them.
        staged: The staging table.
        columns: Its columns.
        count: The number of its rows.
    """

    table: str
    cursor: psycopg.Cursor[tuple[Any, ...]]
    staged: sql.Identifier
    columns: Sequence[Column]
    count: int

    def check_there(self) -> None:
        """Refuse a table without all of its rows: PostgreSQL empties unlogged ones after a crash.

        Raises:
            TableError: Rows are missing.
        """
        self.cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(self.staged))
        (there,) = self.cursor.fetchone() or (0,)
        if there != self.count:
            raise TableError(
                f"{self.table}: of {self.count} rows staged in {self.staged.as_string(None)},"
                f" {there} are left, as after a crash of the server; start the query again"
            )

    def check_unchanged(self, column: Column, value: sql.Composable) -> None:
        """Refuse the first value that the type of the table's column would change.

        Args:
            column: The staged column.
            value: The value that the table would have.

        Raises:
            TableError: There is one.
        """
        self.cursor.execute(
            sql.SQL(
                "SELECT {row} FROM (SELECT pg_catalog.row_number() OVER () - 1 AS {row}, *"
                " FROM {staged}) AS numbered"
                " WHERE ({value})::{type} IS DISTINCT FROM {column}::{type} LIMIT 1"
            ).format(
                row=sql.Identifier(_ROW),
                staged=self.staged,
                value=value,
                type=sql.SQL(column.table_type),
                column=sql.Identifier(column.name),
            )
        )
        if found := self.cursor.fetchone():
            self._refuse(column.name, found[0], "does not fit the column exactly")

    def check_cast(self, column: Column, value: sql.Composable) -> None:
        """Refuse the first value that the server does not take; called after it took not all.

        Args and errors are those of `check_unchanged`.
        """
        first, count = 0, self.count
        if not (reason := self._problem(value, first, count)):
            return
        while count > 1:
            half = count // 2
            if found := self._problem(value, first, half):
                count, reason = half, found
            else:
                first, count = first + half, count - half
        self._refuse(column.name, first, f"is refused by the server: {reason}")

    def _problem(self, value: sql.Composable, first: int, count: int) -> str:
        """Return why the server does not take some of the values; empty: it takes them."""
        counted = sql.SQL("SELECT count({}) FROM (SELECT * FROM {} OFFSET {} LIMIT {}) AS part")
        try:
            with self.cursor.connection.transaction():
                self.cursor.execute(counted.format(value, self.staged, first, count))
        except (psycopg.DataError, errors.CheckViolation, errors.NotNullViolation) as error:
            return message_of(error)
        return ""

    def _refuse(self, name: str, row: int, reason: str) -> NoReturn:
        place = f"row {row} of a task"
        if set(PLACE) <= {column.name for column in self.columns}:
            names = sql.SQL(", ").join(map(sql.Identifier, PLACE))
            found = sql.SQL("SELECT {} FROM {} OFFSET {} LIMIT 1").format(names, self.staged, row)
            topic, partition, offset = self.cursor.execute(found).fetchone() or ("", "", "")
            place = f"the record {topic}-{partition} offset {offset}"
        raise TableError(
            f"the batch does not fit {self.table}: {name} {reason} ({place}). Change the transform"
        )


def declared(column: Column) -> sql.Composed:
    """Return a column as a statement declares it.

    Args:
        column: The column.
    """
    # Names of types are texts of this package, and need no quotes.
    return sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.table_type))
