"""`spark_groups.postgres_table`: a PostgreSQL table whose rows and fence change together.

Tasks stage rows. The driver moves them to the table in one transaction, in which it locks the
entries of the batch's partitions and compares them, so no other writer can commit in between.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import (
    OptionsError,
    TableChangedError,
    TableError,
    TableRestoredError,
    needs,
)
from spark_groups.fence.compare import NEW_CHECKPOINT, Decision
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState, holds
from spark_groups.spark.tables.columns import TableColumns, schema_of_text
from spark_groups.spark.tables.copy_format import NAME_BYTES_MAX, POSTGRES, columns_of
from spark_groups.spark.tables.growth import evolves
from spark_groups.spark.tables.left_out import letter_rows
from spark_groups.spark.tables.postgres_columns import (
    FIND_COLUMNS,
    Casts,
    StagedRows,
    columns_of_table,
    declared,
)
from spark_groups.spark.tables.postgres_letters import add_letters, found_letters
from spark_groups.spark.tables.postgres_rows import (
    ANSWER_MAX_S,
    LOCK_WAIT_MS,
    STATEMENT_MAX_MS,
    Connection,
    PostgresTaskWriter,
    connect,
    message_of,
    staged_at,
)
from spark_groups.spark.tables.postgres_upserts import PostgresMerge, check_index
from spark_groups.spark.tables.staged_table import StagedTable
from spark_groups.spark.tables.table import PREFIX, Attempt, Orphan, Piece, described
from spark_groups.spark.tables.upserts import DELETED, Upsert, upsert_of
from spark_groups.types import TopicId

with needs("postgres"):
    import psycopg
    from psycopg import errors, sql

logger = logging.getLogger(__name__)

FENCE: Final = "spark_groups_fence"
"""The table of the entries, in the schema of the tables that they fence."""
DROP_WAIT_MS: Final = 500
"""How long a commit waits for readers of its staging tables, in milliseconds, to drop them."""

_SHOWN: Final = ("host", "hostaddr", "port", "dbname")
"""The parts of a dsn that are in the name of a table."""
Cursor = psycopg.Cursor[tuple[Any, ...]]

_CHANGED: Final = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout,
)
"""Errors of the server if another transaction came first."""

_MAKE_FENCE: Final = """
CREATE TABLE IF NOT EXISTS {fence} (
  table_name text NOT NULL,
  group_id text NOT NULL,
  topic_id uuid NOT NULL,
  partition integer NOT NULL,
  start_offset bigint NOT NULL,
  next_offset bigint NOT NULL,
  table_oid oid NOT NULL,
  PRIMARY KEY (table_name, group_id, topic_id, partition),
  CHECK (0 <= start_offset AND start_offset <= next_offset)
)"""
_RESOLVE: Final = """
SELECT pg_catalog.to_regclass(%s::pg_catalog.text)::pg_catalog.oid, pg_catalog.current_schema()"""
_FIND: Final = """
SELECT n.nspname, c.relkind::text, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"""
_FIND_FENCE: Final = """
SELECT f.relkind = 'r' AND f.relpersistence = 'p',
  f.relowner IN (n.nspowner, c.relowner) OR r.rolsuper OR pg_has_role(f.relowner, 'USAGE'),
  r.rolname::text
FROM pg_class f JOIN pg_namespace n ON n.oid = f.relnamespace
JOIN pg_roles r ON r.oid = f.relowner LEFT JOIN pg_class c ON c.oid = %s
WHERE f.oid = to_regclass(%s)"""
_MAY_STAGE: Final = """
SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s"""
_READ: Final = """
SELECT group_id, topic_id, partition, start_offset, next_offset, table_oid FROM {fence}
WHERE table_name = %(table)s AND (%(topics)s::uuid[] IS NULL OR topic_id = ANY(%(topics)s::uuid[]))
"""
_KEYS: Final = "unnest(%(topics)s::uuid[], %(partitions)s::int[])"
_LOCK: Final = f"""
SELECT group_id, topic_id, partition, start_offset, next_offset, table_oid FROM {{fence}}
WHERE table_name = %(table)s AND group_id = %(group)s
  AND (topic_id, partition) IN (SELECT * FROM {_KEYS})
ORDER BY topic_id, partition FOR UPDATE"""
_VALUES: Final = (
    "unnest(%(topics)s::uuid[], %(partitions)s::int[], %(starts)s::bigint[], %(nexts)s::bigint[])"
    " AS new (topic_id, partition, start_offset, next_offset)"
)
_BEGIN: Final = f"""
INSERT INTO {{fence}}
SELECT %(table)s, %(group)s, topic_id, partition, start_offset, next_offset, %(oid)s FROM {_VALUES}
ORDER BY topic_id, partition ON CONFLICT DO NOTHING"""
_MOVE_ON: Final = f"""
UPDATE {{fence}} AS old SET start_offset = new.start_offset, next_offset = new.next_offset
FROM {_VALUES} WHERE old.table_name = %(table)s AND old.group_id = %(group)s
  AND old.topic_id = new.topic_id AND old.partition = new.partition"""
_STAGED: Final = """
SELECT c.relname, coalesce(pg_total_relation_size(c.oid), 0),
  obj_description(c.oid, 'pg_class'), now()
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND starts_with(c.relname, %(prefix)s)
  AND pg_has_role(c.relowner, 'USAGE')
ORDER BY c.relname"""
"""Tables that this role may drop."""


def postgres_table(
    dsn: str,
    table: str,
    *,
    dead_letters: str | None = None,
    merge_on: str | Sequence[str] = (),
    delete_when: str = DELETED,
    order_by: str | None = None,
    evolve: str | None = None,
) -> PostgresTable:
    """Return a PostgreSQL table for `spark_groups.write_table`; the first batch may create it.

    Args:
        dsn: A connection string of libpq, such as `host=db dbname=lake user=writer`, or a URI; the
            driver and all executors use it.
        table: The table's name, as schema.table if the schema is not on the search path.
        dead_letters: The name of a table in the same schema that gets dead letters of `on_error` in
            the transaction of their batch, so exactly once; None: a topic gets them.
        merge_on: The columns of a key, which need a unique index; a new table gets it as its
            primary key. A row replaces the one with the same key, as in a Delta table.
        delete_when: The boolean column of rows that delete the row of their key; not stored.
        order_by: The column whose greatest value wins, also over the value in the table; for keys
            that come in several partitions, which are refused without it.
        evolve: `add`: a batch's new columns are added to the table; None: they are an error.

    Raises:
        OptionsError: `psycopg` is missing, or the dsn or the name is invalid, or the columns of
            `merge_on`, `delete_when` and `order_by` do not fit each other.
    """
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        # The message of libpq may show the password.
        raise OptionsError(
            "the dsn is no connection string of libpq: write host=... dbname=... user=..., or"
            " postgresql://user@host/database"
        ) from None
    if any("@" in str(given.get(name, "")) for name in _SHOWN):
        # A part of the password would be in the name of the table, which errors show.
        raise OptionsError(
            "the dsn has an @ in its user or password: write it as %40, or write host=... user=..."
            " password=..."
        )
    names = table.split(".", 1)
    if not all(names) or any(len(each.encode()) > NAME_BYTES_MAX for each in names):
        raise OptionsError(f"{table!r} is not the name of a table, nor schema.table")
    if dead_letters is not None and not 0 < len(dead_letters.encode()) <= NAME_BYTES_MAX:
        raise OptionsError(f"{dead_letters!r} is not the name of a table")
    server = ", ".join(f"{name} {given[name]}" for name in _SHOWN if given.get(name))
    name = f"the PostgreSQL table {table} ({server or 'local'})"
    upsert = upsert_of(merge_on, delete_when, order_by)
    return PostgresTable(dsn, tuple(names), name, dead_letters, upsert, evolves=evolves(evolve))


@dataclass(frozen=True, slots=True)
class _Place:
    """The schema and oid of a table.

    Args:
        schema: Its schema, or the one for a new table.
        oid: Its oid; None: there is no table.
        has_fence: Whether the schema has a table of entries.
    """

    schema: str
    oid: int | None
    has_fence: bool


class PostgresTable(StagedTable):
    """A PostgreSQL table with a fence; `postgres_table` makes one.

    Args:
        dsn: The connection string of libpq.
        names: The table's name, or its schema and name.
        text: Its name in errors and logs.
        letters: The name of a table of dead letters; None: there is none.
        upsert: How rows change those with the same key; None: they are added.
        evolves: Whether a batch's new columns are added.
    """

    def __init__(
        self,
        dsn: str,
        names: tuple[str, ...],
        text: str,
        letters: str | None = None,
        upsert: Upsert | None = None,
        *,
        evolves: bool = False,
    ) -> None:
        super().__init__(text, letters, upsert)
        self._evolves = evolves
        self._dsn = dsn
        self._names = names
        self._connection: Connection | None = None
        self._resolved: _Place | None = None

    def check(self) -> TableColumns:
        """Return the columns to which rows are fitted.

        The look is that of another object: what a query has seen of a table begins with its first
        batch.

        Raises:
            TableError: The database cannot be reached, or the role may not make staging tables or
                add dead letters, or their table is another one.
        """
        looking = copy.copy(self)
        vars(looking).update(_connection=None, _resolved=None)
        try:
            with looking._transaction() as cursor:
                place = looking._found(cursor)
                cursor.execute(_MAY_STAGE, [place.schema])
                if cursor.fetchone() == (False,):
                    raise TableError(
                        f"{self}: rows are staged in tables of the schema {place.schema}, where the"
                        f" role may not create any: GRANT CREATE ON SCHEMA {place.schema} TO ..."
                    )
                for names in found_letters(cursor, place.schema, self._letters, str(self)):
                    self._check_letter_columns(names)
                if self.upsert is not None and place.oid is not None:
                    check_index(cursor, place.oid, self.upsert, str(self))
                return looking._columns(cursor, place)[0]
        finally:
            if looking._connection is not None:
                looking._connection.close()

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

        Raises:
            TableError: It is a view, or a foreign, temporary or unlogged table; or the database
                cannot be reached.
            TableRestoredError: The table was dropped, and its fence was not.
        """
        topics = None if topic_ids is None else sorted(topic_ids)
        with self._transaction() as cursor:
            place = self._found(cursor)
            if not place.has_fence:
                self._check_same(place)
                return TableState(is_there=place.oid is not None)
            cursor.execute(self._sql(_READ, place), {"table": self._names[-1], "topics": topics})
            rows = cursor.fetchall()
        self._check_not_dropped(group_id, place, rows)
        if not rows:
            self._check_same(place)
        return TableState(is_there=place.oid is not None, entries=dict(map(_entry, rows)))

    def task_writer(self, attempt: Attempt) -> PostgresTaskWriter:
        """Return the writer that stages rows in the tasks of an attempt."""
        with self._transaction() as cursor:
            place = self._found(cursor)
            columns, _ = self._columns(cursor, place)
        table = self._names[-1]
        return PostgresTaskWriter(
            self._dsn, place.schema, table, attempt.group_id, attempt.name, columns
        )

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Move rows into the table and change entries, in one transaction."""
        # The transaction compares the entries that it changes.
        del state
        written = [piece for piece in pieces if piece.rows]
        with self._transaction(is_commit=True) as cursor:
            place = self._found(cursor)
            if place.oid is None or not place.has_fence:
                place = self._made(cursor, pieces)
            if letters := letter_rows(pieces, attempt.group_id):
                self._lock_names(cursor, place)
                add_letters(cursor, sql.Identifier(place.schema, str(self._letters)), letters)
            if place.oid is None:
                # There are no columns for a new table: a later batch creates it.
                return
            self._change(cursor, place, attempt.group_id, decision.changes)
            staged = [schema_of_text(each.details) for each in written]
            columns, casts = self._columns(cursor, place)
            if new := columns.check_staged(staged):
                self._add_columns(cursor, place, new)
                # Another writer may have added them meanwhile, in other types.
                columns, casts = self._columns(cursor, place)
                columns.check_staged(staged)
            if self.upsert is not None and written:
                self._merge(cursor, place, written, columns, casts)
            else:
                for each in written:
                    self._move(cursor, place, each, casts)
        self._drop_staged(place, written)

    def orphans(self, older_than_s: float) -> list[Orphan]:
        """Return the staging tables of crashed or refused attempts.

        Raises:
            TableError: The database cannot be reached.
        """
        with self._transaction() as cursor:
            asked = {"schema": self._found(cursor).schema, "prefix": PREFIX}
            cursor.execute(_STAGED, asked)
            found = cursor.fetchall()
        return [
            Orphan(name, size_bytes, at.timestamp())
            for name, size_bytes, comment, now in found
            if (at := staged_at(comment, self._names[-1])) is not None
            and (now - at).total_seconds() >= older_than_s
        ]

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Drop orphans.

        Raises:
            TableError: The role may not drop one of them; those before it are dropped.
        """
        for orphan in orphans:
            with self._transaction() as cursor:
                staged = sql.Identifier(self._found(cursor).schema, orphan.name)
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(staged))

    @contextmanager
    def _transaction(
        self, *, is_commit: bool = False, wait_ms: int | None = None
    ) -> Iterator[Cursor]:
        """Run statements in one transaction; a lost response to a commit is a TableChangedError."""
        with self._lock:
            connection = self._connected()
            try:
                with connection.transaction(), connection.cursor() as cursor:
                    connection.limit(wait_ms=wait_ms or LOCK_WAIT_MS, statement_ms=STATEMENT_MAX_MS)
                    yield cursor
            except _CHANGED as error:
                raise TableChangedError(
                    f"another writer changes {self}: {message_of(error)}"
                ) from None
            except psycopg.Error as error:
                if is_commit and (connection.closed or connection.broken):
                    raise TableChangedError(
                        f"the response of {self} to a commit was lost: {message_of(error)}"
                    ) from None
                raise TableError(f"{self}: {message_of(error)}") from None

    def _connected_now(self) -> Connection:
        """Return the connection of the transaction that runs."""
        assert self._connection is not None
        return self._connection

    def _connected(self) -> Connection:
        """Return a connection that works; a new one if the last one is broken."""
        connection = self._connection
        if connection is not None:
            try:
                connection.answer_max_s = ANSWER_MAX_S
                connection.execute("SELECT 1")
            except psycopg.Error:
                connection.close()
            else:
                return connection
        self._connection = connect(self._dsn)
        return self._connection

    def _found(self, cursor: Cursor) -> _Place:
        """Return the schema and oid of the table.

        Raises:
            TableError: It is a view, or a foreign, temporary or unlogged table; or there is no
                schema.
        """
        with self._connected_now().role_path():
            cursor.execute(_RESOLVE, [sql.Identifier(*self._names).as_string(cursor)])
            oid, schema = cursor.fetchone() or (None, None)
        row = None if oid is None else cursor.execute(_FIND, [oid]).fetchone()
        if row is None:
            oid = None
            schema = self._names[0] if len(self._names) > 1 else schema
            if schema is None:
                raise TableError(f"{self}: there is no schema on the search path")
        else:
            schema, kind, persistence = row
            if kind not in {"r", "p"} or persistence != "p":
                raise TableError(
                    f"{self} is a view, or a foreign, temporary or unlogged table: it could lose"
                    " rows that its fence counts"
                )
        has_fence = self._has_fence(cursor, schema, oid)
        place = _Place(schema, oid, has_fence)
        if self._resolved is not None and self._resolved.schema != schema:
            self._check_same(place)
        if self._resolved is None or self._resolved.oid is None:
            self._resolved = place
        return place

    def _has_fence(self, cursor: Cursor, schema: str, oid: int | None) -> bool:
        """Return whether there is a table of entries.

        Args:
            cursor: The cursor of the transaction.
            schema: The schema of the table.
            oid: The oid of the table; None: there is no table.

        Raises:
            TableError: The relation of that name is none that a writer of the table has made.
        """
        fence = sql.Identifier(schema, FENCE).as_string(cursor)
        row = cursor.execute(_FIND_FENCE, [oid, fence]).fetchone()
        if row is None:
            return False
        is_table, is_trusted, owner = row
        if not is_table:
            raise TableError(
                f"{self}: {fence} is a view, or another relation that is no ordinary table: drop"
                " it, or name a table of another schema"
            )
        if not is_trusted:
            raise TableError(
                f"{self}: {fence} belongs to the role {owner}, which could change the entries:"
                " it must belong to the owner of the table or of the schema, or to a role that the"
                " writer has. As its owner: ALTER TABLE ... OWNER TO ..."
            )
        return True

    def _check_same(self, place: _Place) -> None:
        """Refuse another table than the one that the name has led to before.

        Raises:
            TableError: It is another one.
        """
        before = self._resolved
        is_same = before is None or before.schema == place.schema
        if before is None or (is_same and before.oid in {None, place.oid}):
            return
        # The next run of the query looks the name up again.
        self._resolved = None
        raise TableError(
            f"{self} was the table with the oid {before.oid} in the schema {before.schema}, and its"
            f" name leads to the one with the oid {place.oid} in {place.schema} now. Name the table"
            " with its schema, and start the query again"
        )

    def _made(self, cursor: Cursor, pieces: Sequence[Piece]) -> _Place:
        """Create the table, with the columns of a batch, and its fence, if they do not exist.

        Raises:
            TableError: The columns of two tasks differ.
        """
        place = self._found(cursor)
        staged = [schema_of_text(each.details) for each in described(pieces)]
        found = TableColumns(str(self), POSTGRES, evolves=self._evolves)
        if self.upsert is not None:
            found = self.upsert.staged(found)
        new = found.check_staged(staged)
        columns = columns_of(pa.schema(each for each in new if each.name not in found.hidden))
        if place.oid is None and not columns:
            return place
        self._lock_names(cursor, place)
        cursor.execute(self._sql(_MAKE_FENCE, place))
        if columns:
            made = "CREATE TABLE IF NOT EXISTS {table} ({columns})"
            fields = [*map(declared, columns)]
            if self.upsert is not None:
                names = sql.SQL(", ").join(map(sql.Identifier, self.upsert.merge_on))
                fields.append(sql.SQL("PRIMARY KEY ({})").format(names))
            cursor.execute(self._sql(made, place, columns=sql.SQL(", ").join(fields)))
        return self._found(cursor)

    def _add_columns(self, cursor: Cursor, place: _Place, new: Sequence[pa.Field]) -> None:
        """Add columns to the table; other transactions wait for the end of this one.

        Raises:
            TableError: The role does not own the table.
        """
        columns = columns_of(pa.schema(new))
        added = [sql.SQL("ADD COLUMN IF NOT EXISTS {}").format(declared(each)) for each in columns]
        statement = self._sql("ALTER TABLE {table} {added}", place, added=sql.SQL(", ").join(added))
        try:
            cursor.execute(statement)
        except errors.InsufficientPrivilege as error:
            raise TableError(
                f"{self} cannot get new columns: {message_of(error)}. As its owner:"
                f" {statement.as_string(cursor)}"
            ) from None
        logger.info("%s has new columns: %s", self, ", ".join(map(str, new)))

    def _columns(self, cursor: Cursor, place: _Place) -> tuple[TableColumns, Casts]:
        """Return the columns of the table, to which rows are fitted, and how they take values."""
        if place.oid is None:
            found, casts = TableColumns(str(self), POSTGRES), Casts()
        else:
            cursor.execute(FIND_COLUMNS, {"oid": place.oid})
            found, casts = columns_of_table(str(self), cursor.fetchall())
        found = replace(found, evolves=self._evolves)
        return found if self.upsert is None else self.upsert.staged(found), casts

    def _change(
        self, cursor: Cursor, place: _Place, group_id: str, changes: Sequence[EntryChange]
    ) -> None:
        """Lock entries, compare them and change them.

        Raises:
            TableChangedError: One has changed since the comparison.
        """
        common = {"table": self._names[-1], "group": group_id, "oid": place.oid}
        cursor.execute(self._sql(_LOCK, place), {**common, **_values(changes)})
        rows = cursor.fetchall()
        entries = dict(map(_entry, rows))
        if not holds(changes, entries.get) or any(row[-1] != place.oid for row in rows):
            raise TableChangedError(f"another writer has committed to {self}")
        begun = [each for each in changes if each.expected is None]
        moved = [each for each in changes if each.expected is not None]
        for statement, part in ((_BEGIN, begun), (_MOVE_ON, moved)):
            if part:
                cursor.execute(self._sql(statement, place), {**common, **_values(part)})
                if cursor.rowcount != len(part):
                    raise TableChangedError(f"another writer has begun a partition of {self}")

    def _move(self, cursor: Cursor, place: _Place, piece: Piece, casts: Casts) -> None:
        """Move the rows of a piece into the table.

        Raises:
            TableError: Rows are missing: PostgreSQL empties unlogged tables after a crash. Or a
                value does not fit a column exactly.
        """
        staged = sql.Identifier(place.schema, piece.name)
        columns = columns_of(schema_of_text(piece.details))
        values = [casts.of(column) for column in columns]
        inserted = self._sql(
            "INSERT INTO {table} ({names}) SELECT {values} FROM {staged}",
            place,
            names=sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
            values=sql.SQL(", ").join(values),
            staged=staged,
        )
        rows = StagedRows(str(self), cursor, staged, columns, piece.rows)
        if self._moved(cursor, [rows], casts, [inserted]) != piece.rows:
            # A trigger of the table may have dropped rows, which is no error.
            rows.check_there()

    def _merge(
        self,
        cursor: Cursor,
        place: _Place,
        pieces: Sequence[Piece],
        columns: TableColumns,
        casts: Casts,
    ) -> None:
        """Merge the rows of a batch into the table.

        Raises:
            TableError: As for rows that are moved; or offsets do not order the rows of a key, or
                a row violates another constraint.
        """
        assert self.upsert is not None
        table = sql.Identifier(place.schema, self._names[-1])
        staged = [(sql.Identifier(place.schema, piece.name), piece) for piece in pieces]
        merge = PostgresMerge(str(self), table, self.upsert, columns, casts, staged)
        found = merge.staged(cursor)
        try:
            try:
                self._moved(cursor, found, casts, merge.statements(), merge.check_order)
            except errors.ForeignKeyViolation:
                # Rows that refer to a deleted one may refer to another one after the batch.
                self._moved(cursor, found, casts, merge.statements(deletes_first=False))
        except psycopg.IntegrityError as error:
            raise merge.violation(error) from None

    def _moved(
        self,
        cursor: Cursor,
        staged: Sequence[StagedRows],
        casts: Casts,
        statements: Sequence[sql.Composed],
        check: Callable[[Cursor], object] = lambda _: None,
    ) -> int:
        """Run statements that move staged rows into the table; return the last one's number.

        Raises:
            TableError: A value does not fit a column exactly.
        """
        values = [(rows, each, casts.of(each)) for rows in staged for each in rows.columns]
        try:
            with cursor.connection.transaction():
                for rows, each, value in values:
                    if each.name in casts.compared:
                        rows.check_unchanged(each, value)
                check(cursor)
                # Triggers and functions of the table may need the path of the role.
                with self._connected_now().role_path(first="pg_catalog"):
                    for statement in statements:
                        cursor.execute(statement)
                    return cursor.rowcount
        except (psycopg.DataError, errors.CheckViolation, errors.NotNullViolation) as error:
            for rows, each, value in values:
                rows.check_cast(each, value)
            raise TableError(f"the batch does not fit {self}: {message_of(error)}") from None

    def _lock_names(self, cursor: Cursor, place: _Place) -> None:
        """Keep other writers from creating a table in the schema.

        Without the lock, of two writers that create the table one gets an error of the catalog.
        """
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{FENCE} {place.schema}"]
        )

    def _drop_staged(self, place: _Place, pieces: Sequence[Piece]) -> None:
        """Drop tables of staged rows whose batch is committed.

        The drop waits for readers of the tables, such as pg_dump, and locks the tables: in the
        transaction of the batch it would keep the batch from being committed.
        """
        names = [sql.Identifier(place.schema, piece.name) for piece in pieces]
        if not names:
            return
        try:
            with self._transaction(wait_ms=DROP_WAIT_MS) as cursor:
                # If the server crashes and forgets the drop, the tables are found as orphans.
                cursor.execute("SET LOCAL synchronous_commit = off")
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.SQL(", ").join(names)))
        except TableError as error:
            logger.info("%s: staged rows are left to spark-groups table vacuum: %s", self, error)

    def _check_not_dropped(
        self, group_id: str, place: _Place, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Refuse a table whose oid is not the one in its entries.

        Raises:
            TableRestoredError: The table was dropped, or created again.
        """
        if all(row[-1] == place.oid for row in rows):
            return
        self._resolved = None
        fence = self._sql("{fence}", place).as_string(None)
        name = sql.Literal(self._names[-1]).as_string(None)
        table = sql.Literal(self._sql("{table}", place).as_string(None)).as_string(None)
        raise TableRestoredError(
            f"{self} was dropped, or created again, since the group {group_id!r} or another one"
            " wrote to it, so it may lack rows that its fence counts. If the table has the rows,"
            f" as after a restored dump: UPDATE {fence} SET table_oid = {table}::regclass WHERE"
            f" table_name = {name}. To begin again: DELETE FROM {fence} WHERE table_name = {name};"
            " to have all records written again, then also run for each group: spark-groups"
            f" reset-offsets GROUP --to-earliest --all-topics --execute; then {NEW_CHECKPOINT}"
        )

    def _sql(self, text: str, place: _Place, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(
            table=sql.Identifier(place.schema, self._names[-1]),
            fence=sql.Identifier(place.schema, FENCE),
            **parts,
        )


def _entry(row: tuple[Any, ...]) -> tuple[FenceKey, Entry]:
    group_id, topic_id, partition, start_offset, next_offset, _ = row
    return FenceKey(group_id, topic_id, partition), Entry(start_offset, next_offset)


def _values(changes: Sequence[EntryChange]) -> Mapping[str, list[Any]]:
    return {
        "topics": [each.key.topic_id for each in changes],
        "partitions": [each.key.partition for each in changes],
        "starts": [each.entry.start_offset for each in changes],
        "nexts": [each.entry.next_offset for each in changes],
    }
