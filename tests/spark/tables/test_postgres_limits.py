"""A PostgreSQL, or a task that writes to it, that stands still while its connection stays open."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from spark_groups.errors import TableChangedError, TableError
from spark_groups.spark.tables.postgres_rows import ANSWER_MAX_S, connect
from spark_groups.spark.tables.table import Attempt
from tests.spark.tables.batches_setup import GROUP, reads, rows
from tests.spark.tables.places import PostgresPlace, Writer
from workshop.parts.waiting import wait_until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    rooms = "spark_groups.spark.tables"
    for name in ("postgres.ANSWER_MAX_S", "postgres_rows.ANSWER_MAX_S"):
        monkeypatch.setattr(f"{rooms}.{name}", 0.5)
    monkeypatch.setattr(f"{rooms}.postgres.STATEMENT_MAX_MS", 500)
    monkeypatch.setattr(f"{rooms}.postgres_rows.COPY_MAX_MS", 500)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process of the server, whose connections stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("impatient")
def test_server_that_stands_still_between_two_batches_is_asked_again(
    on_postgres: PostgresPlace,
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    with stopped(writer.table._connection.info.backend_pid):  # type: ignore[attr-defined]
        writer.write(reads(10, 20))
    assert on_postgres.offsets() == list(range(20))


@pytest.mark.usefixtures("impatient")
def test_server_that_stands_still_in_a_commit_is_asked_again(
    on_postgres: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    real = writer.table._move  # type: ignore[attr-defined]

    def move(cursor: psycopg.Cursor[Any], *given: Any) -> None:
        with stopped(cursor.connection.info.backend_pid):
            real(cursor, *given)

    with monkeypatch.context() as patch:
        patch.setattr(writer.table, "_move", move)
        with pytest.raises(TableChangedError, match="the server has not answered for 1 s"):
            writer.write(reads(10, 20))
    writer.commit()
    assert on_postgres.offsets() == list(range(20))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_server", [True, False])
def test_copy_of_a_task_that_does_not_move_is_ended(
    on_postgres: PostgresPlace, is_server: bool
) -> None:
    """Either end may stand still; PostgreSQL ends a COPY only when the next rows arrive.

    Args:
        is_server: Whether the server does, and not the task.
    """

    def copying(since_s: float = 0) -> list[int]:
        found = on_postgres.run(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COPY%%' AND state = 'active'"
            " AND now() - query_start >= make_interval(secs => %s)",
            since_s,
        )
        return [pid for (pid,) in found]

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(reads(0, 1))
        yield rows(reads(1, 2))
        (pid,) = wait_until(copying)
        if not is_server:
            wait_until(lambda: copying(since_s=1))
            yield rows(reads(2, 3))
            return
        with stopped(pid):
            for start in range(0, 10_000_000, 10_000):
                yield rows(reads(start, start + 10_000))

    problem = "has not answered for 1 s" if is_server else "due to statement timeout"
    tasks = on_postgres.fenced().task_writer(Attempt(GROUP, 0, "a"))
    with closing(batches()) as given, pytest.raises(TableError, match=problem):
        [*tasks.write(given, "0")]
    wait_until(lambda: not copying())
    assert on_postgres.staged() == []


def test_limit_of_the_dsn_is_kept(on_postgres: PostgresPlace) -> None:
    connection = connect(f"{on_postgres.dsn} options='-cstatement_timeout=2h'")
    with connection, connection.transaction():
        connection.limit(wait_ms=1000, statement_ms=1000)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("2h",)
        assert connection.answer_max_s == 7200 + ANSWER_MAX_S
