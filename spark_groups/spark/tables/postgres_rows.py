"""The staging of rows in PostgreSQL by tasks, and connections.

Each task stages its rows in an unlogged table of its own, in one transaction: a task that dies
leaves no rows, and the rows of a failed attempt are apart from others. Executors import this
module.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import pyarrow as pa

from spark_groups.errors import TableError, needs
from spark_groups.masking import Secrets
from spark_groups.spark.tables.columns import TableColumns, schema_as_text
from spark_groups.spark.tables.copy_format import HEADER, TRAILER, Column, columns_of, copied
from spark_groups.spark.tables.table import Piece, no_rows

with needs("postgres"):
    import psycopg
    from psycopg import sql
    from psycopg.abc import PQGen

LOCK_WAIT_MS: Final = 30_000
"""How long a commit waits for another one of the same partitions, and how long a driver or a task
that stands still may keep its transaction open."""
STATEMENT_MAX_MS: Final = 600_000
"""How long one statement of the driver may take, unless the role or the dsn has a limit."""
COPY_MAX_MS: Final = 3_600_000
"""How long a task may copy its rows, unless the role or the dsn has a limit."""
ANSWER_MAX_S: Final = 30.0
"""How long a server may take to answer that it is there; and how long after the limit of a
statement the connection is closed, because the server does not even report that limit."""

_CONNECTION: Final = {
    # Settings of the dsn take precedence. Without keepalives, a client waits for a dead server.
    "connect_timeout": 30,
    "tcp_user_timeout": 60_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "spark-groups",
}
_SETTINGS: Final = """
SELECT (SELECT reset_val FROM pg_settings WHERE name = 'search_path'),
  (SELECT set_config(name, reset_val, true) FROM pg_settings WHERE name = 'role'),
  set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true),
  set_config('extra_float_digits', '1', true),
  set_config('lock_timeout', %(wait)s, true),
  set_config('idle_in_transaction_session_timeout', %(wait)s, true),
  set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
    ELSE current_setting('synchronous_commit') END, true),
  extract(epoch FROM set_config('statement_timeout',
    CASE current_setting('statement_timeout') WHEN '0' THEN %(statement)s
    ELSE current_setting('statement_timeout') END, true)::interval)::float8"""
"""Another client of a pooler may have left settings in the session: those on which a value or a
name depends are set in each transaction. The reset value is that of the role, database or dsn."""
_OWN_PATH: Final = "SET LOCAL search_path TO pg_catalog, pg_temp"
"""With the path of the role, a function, operator or type of a schema on it could be taken for one
of PostgreSQL, by a role that may create one there (CVE-2018-1058)."""
_SET_PATH: Final = "SELECT pg_catalog.set_config('search_path', %s::pg_catalog.text, true)"

Returned = TypeVar("Returned")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed where the server does not answer in time.

    A server whose process or machine stands still answers no statement, but its kernel keeps the
    connection open.
    """

    answer_max_s = ANSWER_MAX_S
    """How long the server may take."""
    _role_path = ""
    """The `search_path` of the role, database or dsn."""

    def wait(self, gen: PQGen[Returned], *given: Any, **named: Any) -> Returned:
        """Wait for the server's answer.

        Args:
            gen: Reads the answer.
            given: Passed on.
            named: Passed on.

        Raises:
            OperationalError: There was no answer in time.
        """
        return super().wait(self._limited(gen), *given, **named)

    def _limited(self, gen: PQGen[Returned]) -> PQGen[Returned]:
        """Read an answer; the library resumes this every 0.1 s while there is none."""
        deadline_s = time.monotonic() + self.answer_max_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline_s:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server has not answered for {self.answer_max_s:g} s"
                    )
                wanted = gen.send(ready)
        except StopIteration as done:
            answer: Returned = done.value
            return answer

    def limit(self, *, wait_ms: int, statement_ms: int) -> None:
        """Set the limits of the transaction that was begun, and on what its values depend.

        Args:
            wait_ms: How long it waits for locks, and how long it may stand still.
            statement_ms: How long a statement may take, if there is no limit yet.
        """
        self.execute(_OWN_PATH)
        given = {"wait": str(wait_ms), "statement": str(statement_ms)}
        self._role_path, *_, limit_s = self.execute(_SETTINGS, given).fetchone() or ("", 0.0)
        self.answer_max_s = limit_s + ANSWER_MAX_S

    @contextmanager
    def role_path(self, first: str = "") -> Iterator[None]:
        """Run statements with the `search_path` of the role.

        Args:
            first: A schema that is looked up before.
        """
        path = ", ".join(filter(None, (first, self._role_path)))
        self.execute(_SET_PATH, [path])
        yield
        self.execute(_OWN_PATH)


def connect(dsn: str) -> Connection:
    """Return a connection that commits each statement, unless there is a transaction.

    Args:
        dsn: The connection string of libpq; it may hold a password, which errors do not show.

    Raises:
        TableError: The server cannot be reached, or refuses the login.
    """
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    settings: dict[str, Any] = {**_CONNECTION, **given, "client_encoding": "utf8"}
    try:
        connection = Connection.connect(**settings, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        secrets = Secrets.of(psycopg.conninfo.conninfo_to_dict(dsn))
        raise TableError(f"PostgreSQL cannot be reached: {secrets.line(error)}") from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


@dataclass(frozen=True, slots=True)
class PostgresTaskWriter:
    """Stages the rows of a task in a table of its own; pickled to executors.

    Args:
        dsn: The connection string of libpq; with secrets, which the repr omits.
        schema: The schema of the staging tables.
        table: The table that the rows are for.
        group_id: The group whose rows they are.
        attempt: The beginning of the names of staging tables.
        columns: The columns of the table.
    """

    dsn: str = field(repr=False)
    schema: str
    table: str
    group_id: str
    attempt: str
    columns: TableColumns

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Stage the rows of one task; a task without rows makes no table."""
        plain = self.columns.fitted(batches)
        first = each = next(plain, None)
        while each is not None and not each.num_rows:
            each = next(plain, None)
        if each is None:
            if first is not None:
                yield no_rows(first.schema)
            return
        try:
            yield self._staged(each, filter(_has_rows, plain), f"{self.attempt}-{task}")
        except psycopg.Error as error:
            raise TableError(f"rows cannot be staged in PostgreSQL: {message_of(error)}") from None

    def _staged(self, first: pa.RecordBatch, others: Iterable[pa.RecordBatch], name: str) -> Piece:
        columns = columns_of(first.schema)
        rows = size_bytes = 0
        connection = connect(self.dsn)
        # Commits at the end of the block, or rolls back if it raises.
        with connection, connection.transaction():
            connection.limit(wait_ms=LOCK_WAIT_MS, statement_ms=COPY_MAX_MS)
            (now,) = connection.execute("SELECT now()::text").fetchone() or ("",)
            for statement in self._statements(name, columns, now):
                connection.execute(statement)
            into = sql.SQL("COPY {} FROM STDIN (FORMAT binary, FREEZE)").format(
                sql.Identifier(self.schema, name)
            )
            with connection.cursor().copy(into) as copy:
                copy.write(HEADER)
                for batch in itertools.chain([first], others):
                    rows += batch.num_rows
                    for chunk in copied(batch):
                        size_bytes += len(chunk)
                        copy.write(chunk)
                copy.write(TRAILER)
        return Piece(name, rows, size_bytes, schema_as_text(first.schema))

    def _statements(
        self, name: str, columns: Iterable[Column], staged_at: str
    ) -> Iterator[sql.Composed]:
        """Return the statements that create the staging table."""
        fields = [
            sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.staged_type))
            for column in columns
        ]
        place = sql.Identifier(self.schema, name)
        yield sql.SQL("CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = false)").format(
            place, sql.SQL(", ").join(fields)
        )
        # `orphans` needs the table that the rows are for, and their age.
        note = {"table": self.table, "group": self.group_id, "staged_at": staged_at}
        yield sql.SQL("COMMENT ON TABLE {} IS {}").format(place, sql.Literal(json.dumps(note)))


def _has_rows(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows)


def message_of(error: psycopg.Error) -> str:
    """Return the message of an error, without the values of rows that PostgreSQL adds to it.

    Args:
        error: The error.
    """
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0]


def staged_at(comment: str | None, table: str) -> datetime | None:
    """Return when rows of a table were staged; None: the comment is not of its writers.

    Args:
        comment: The comment of a table with staged rows, or with anything.
        table: The table that the rows are for.
    """
    try:
        note = json.loads(comment or "")
        at = datetime.fromisoformat(note["staged_at"]) if note["table"] == table else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return at if at is not None and at.tzinfo is not None else None
