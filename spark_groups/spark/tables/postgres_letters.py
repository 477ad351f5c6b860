"""The table of dead letters in PostgreSQL, which gets those of a batch in its transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from spark_groups.errors import TableError, needs
from spark_groups.spark.tables.left_out import LETTER_COLUMNS

with needs("postgres"):
    import psycopg
    from psycopg import sql

_LETTERS: Final = """
SELECT pg_catalog.has_table_privilege(c.oid, 'INSERT'), pg_catalog.array_agg(a.attname::text)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = %s AND c.relname = %s GROUP BY c.oid"""


def found_letters(
    cursor: psycopg.Cursor[Any], schema: str, letters: str | None, table: str
) -> Iterator[list[str]]:
    """Yield the columns of the table of dead letters, if it is there.

    Args:
        cursor: The cursor of a transaction.
        schema: The schema of the table of dead letters.
        letters: Its name; None: there is none.
        table: The name of the table in errors.

    Raises:
        TableError: The role may not insert into it.
    """
    cursor.execute(_LETTERS, [schema, letters])
    for may_insert, columns in cursor.fetchall():
        yield columns
        if not may_insert:
            raise TableError(
                f"{table}: the role may not add dead letters: GRANT INSERT ON"
                f" {schema}.{letters} TO ..."
            )


def add_letters(
    cursor: psycopg.Cursor[Any], table: sql.Identifier, letters: Sequence[tuple[object, ...]]
) -> None:
    """Add dead letters, to a new table if there is none.

    Args:
        cursor: The cursor of the transaction, in which no other writer creates tables.
        table: The table of dead letters.
        letters: The values of its columns.
    """
    cursor.execute("SELECT to_regclass(%s)", [table.as_string(cursor)])
    if cursor.fetchone() == (None,):
        kinds = {str: "text NOT NULL", int: "bigint NOT NULL", bytes: "bytea"}
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kinds[each]))
            for name, each in LETTER_COLUMNS.items()
        ]
        made = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        cursor.execute(made.format(table, sql.SQL(", ").join(columns)))
    names = sql.SQL(", ").join(map(sql.Identifier, LETTER_COLUMNS))
    marks = sql.SQL(", ").join([sql.Placeholder()] * len(LETTER_COLUMNS))
    cursor.executemany(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, names, marks), letters
    )
