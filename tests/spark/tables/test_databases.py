"""PostgreSQL and SQLite tables with a fence, on real databases: no Spark, no broker."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import spark_groups
from spark_groups.errors import OptionsError, TableChangedError, TableError, TableRestoredError
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.write import Notices
from tests.spark.tables.batches_setup import AFTER_PYTHON, GROUP, KEY, SCHEMA, reads, rows
from tests.spark.tables.every_table_setup import place_of
from tests.spark.tables.places import Database, PostgresPlace, SqlitePlace, Writer
from tests.spark.tables.write_setup import Staging, batch_of
from workshop.parts.table_write import write_batch
from workshop.parts.waiting import wait_until


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return place_of(request.param, request, tmp_path)


def test_members_of_one_group_do_not_refuse_each_other(place: Database) -> None:
    one, other = Writer(place), Writer(place)
    one.write(reads(0, 10))
    other.look(reads(0, 7, partition=1))
    one.write(reads(10, 20))
    other.stage()
    other.commit()
    assert place.offsets(1) == list(range(7))


def test_partition_that_is_split_over_tasks(place: Database) -> None:
    writer = Writer(place)
    writer.look(reads(0, 100))
    writer.attempt = Attempt(GROUP, 0, "split")
    tasks = writer.table.task_writer(writer.attempt)
    parts = [reads(start, start + 25) for start in range(0, 100, 25)]
    writer.pieces = [
        piece
        for index, part in enumerate(parts)
        for piece in tasks.write([rows(part)], f"{index}-{index}")
    ]
    # Another try of a task stages under another name; only the returned pieces are committed.
    lost = [*tasks.write([rows(parts[0])], "0-9")]
    writer.commit()
    assert place.offsets() == list(range(100))
    assert len(place.staged()) == len(lost) == 1


def test_rows_of_a_task_that_dies_are_not_committed(place: Database) -> None:
    def dying() -> Iterator[pa.RecordBatch]:
        yield rows(reads(0, 5))
        raise RuntimeError("the task dies here")

    writer = Writer(place)
    writer.look(reads(0, 10))
    tasks = writer.table.task_writer(Attempt(GROUP, 0, "dying"))
    with pytest.raises(RuntimeError, match="the task dies here"):
        [*tasks.write(dying(), "0-0")]
    writer.write(reads(0, 10))
    assert place.offsets() == list(range(10))


def test_tables_of_one_database_have_their_own_entries(place: Database) -> None:
    Writer(place).write(reads(0, 10))
    place.run("CREATE TABLE others AS SELECT * FROM rows")
    place.run("UPDATE spark_groups_fence SET table_name = 'others'")
    assert place.entries(GROUP) == {}


def test_query_continues_after_a_new_column(place: Database) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    place.run("ALTER TABLE rows ADD COLUMN carrier text")
    writer.write(reads(10, 20))
    writer.write(reads(20, 30), schema=SCHEMA.append(pa.field("carrier", pa.string())))
    assert place.offsets() == list(range(30))
    assert place.run("SELECT count(*) FROM rows WHERE carrier = 'AA'") == [(10,)]


def test_table_of_the_user_with_a_default_accepts_rows(place: Database) -> None:
    value = "value bytea" if isinstance(place, PostgresPlace) else "value"
    place.run(
        f'CREATE TABLE rows (partition int, "offset" bigint NOT NULL, {value}, topic varchar(20),'
        " note text DEFAULT 'none')"
    )
    Writer(place).write(reads(0, 10), schema=SCHEMA.remove(4))
    assert place.offsets() == list(range(10))
    assert place.run("SELECT DISTINCT topic, note FROM rows") == [("departures", "none")]


def test_columns_in_another_order_and_of_another_type_within_a_task(place: Database) -> None:
    attempt = Attempt(GROUP, 0, "a")
    first = rows(reads(0, 1))
    turned = rows(reads(1, 2)).select(["topic", "value", "partition", "offset", "timestamp"])
    small = turned.set_column(2, "partition", turned["partition"].cast(pa.int8()))
    tasks = place.fenced().task_writer(attempt)
    (piece,) = tasks.write([first, turned, small], "0-0")
    assert piece.rows == 3
    text = turned.set_column(2, "partition", turned["partition"].cast(pa.string()))
    with pytest.raises(TableError, match="partition is string, not int32"):
        [*tasks.write([first, text], "0-1")]


def test_commit_that_fails_half_way_changes_nothing(place: Database) -> None:
    """The transaction has the rows of the first partition when those of the second fail."""
    writer = Writer(place)
    writer.write(reads(0, 10))
    place.run('CREATE UNIQUE INDEX once ON rows (partition, "offset")')
    place.run('INSERT INTO rows (partition, "offset") VALUES (1, 3)')
    with pytest.raises(TableError) as refused:
        writer.write(reads(10, 20), reads(0, 5, partition=1))
    assert not isinstance(refused.value, TableChangedError)
    assert place.offsets() == list(range(10))
    assert place.entries(GROUP) == {KEY: Entry(0, 10)}


def test_dropped_table_is_refused_until_its_entries_are_deleted(place: Database) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    place.run("DROP TABLE rows")
    for each in (writer, Writer(place)):
        with pytest.raises(TableRestoredError, match="dropped") as refused:
            each.look(reads(10, 20))
    # Without entries, a query continues at the group's offsets.
    assert "spark-groups reset-offsets GROUP --to-earliest --all-topics" in str(refused.value)
    place.run("DELETE FROM spark_groups_fence WHERE table_name = 'rows'")
    writer.write(reads(0, 20))
    assert place.offsets() == list(range(20))


def test_table_that_is_dropped_before_a_commit_is_not_created_by_it(place: Database) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    writer.stage()
    place.run("DROP TABLE rows")
    with pytest.raises(TableChangedError):
        writer.commit()
    with pytest.raises(TableError, match="was dropped"):
        writer.look(reads(10, 20))


def test_table_that_cannot_be_read_for_a_while_is_read_again(
    place: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.postgres.LOCK_WAIT_MS", 200)
    monkeypatch.setattr("spark_groups.spark.tables.sqlite.LOCK_WAIT_S", 0.2)
    writer = Writer(place)
    writer.write(reads(0, 10))
    batch, stage = batch_of(reads(10, 20)), Staging(writer)
    with place.locked() as unlock:
        # The pause is where the other writer commits.
        write_batch(writer.table, batch, stage, Notices(), pause=lambda _: unlock())
    assert place.offsets() == list(range(20))


# PostgreSQL only.


def end_connections(place: PostgresPlace, state: str) -> None:
    """End connections of applications, as a crash of the driver or a failover does."""
    place.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = %s"
        " AND application_name = 'spark-groups'",
        state,
    )


@pytest.mark.parametrize("step", ["_change", "_move"])
@pytest.mark.parametrize("is_after", [False, True])
def test_driver_that_dies_in_its_transaction_changes_nothing(
    on_postgres: PostgresPlace, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    place, writer = on_postgres, Writer(on_postgres)
    writer.write(reads(0, 10))
    real = getattr(writer.table, step)

    def die(cursor: psycopg.Cursor[Any], *given: Any) -> None:
        if is_after:
            real(cursor, *given)
        place.run("SELECT pg_terminate_backend(%s)", cursor.connection.info.backend_pid)
        if not is_after:
            real(cursor, *given)

    with monkeypatch.context() as patch:
        patch.setattr(writer.table, step, die)
        with pytest.raises(TableChangedError, match="response of the PostgreSQL table"):
            writer.write(reads(10, 20))
    assert place.offsets() == list(range(10))
    assert place.entries(GROUP) == {KEY: Entry(0, 10)}
    # The next commit takes the same staged rows.
    writer.commit()
    assert place.offsets() == list(range(20))
    assert place.staged() == []


def test_connection_that_ended_between_two_batches_is_replaced(
    on_postgres: PostgresPlace,
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    end_connections(on_postgres, "idle")
    writer.write(reads(10, 20))
    assert on_postgres.offsets() == list(range(20))


def test_driver_that_is_stopped_in_its_transaction_loses_its_locks(
    on_postgres: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.postgres.LOCK_WAIT_MS", 500)
    owner, zombie = Writer(on_postgres), Writer(on_postgres)
    owner.write(reads(0, 10))
    for each in (owner, zombie):
        each.look(reads(10, 20))
        each.stage()
    continues, is_stopped = threading.Event(), threading.Event()
    real = zombie.table._move  # type: ignore[attr-defined]

    def stop(*given: Any) -> None:
        real(*given)
        is_stopped.set()
        continues.wait()

    monkeypatch.setattr(zombie.table, "_move", stop)
    refused: list[Exception] = []

    def commit() -> None:
        try:
            zombie.commit()
        except TableError as error:
            refused.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    assert is_stopped.wait(300)

    def committed() -> bool:
        try:
            owner.commit()
        except TableChangedError:
            return False
        return True

    wait_until(committed, 400)
    continues.set()
    thread.join()
    assert isinstance(refused[0], TableChangedError)
    assert on_postgres.offsets() == list(range(20))


def test_staged_rows_that_a_server_crash_removed_stop_the_query(on_postgres: PostgresPlace) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    writer.stage()
    on_postgres.run(f'TRUNCATE "{on_postgres.staged()[0]}"')
    with pytest.raises(TableError, match=r"of 10 rows staged in .* 0 are left"):
        writer.commit()
    assert on_postgres.entries(GROUP) == {KEY: Entry(0, 10)}


def test_reader_of_staged_rows_does_not_keep_a_batch_waiting(on_postgres: PostgresPlace) -> None:
    """Such as pg_dump, which reads every table there is when it starts."""
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    writer.stage()
    left = [each.name for each in writer.pieces]
    with psycopg.connect(on_postgres.dsn) as reader:
        reader.execute(f'SELECT FROM "{left[0]}"')
        writer.commit()
        assert on_postgres.offsets() == list(range(20))
        # It is left, and the next batch drops its own.
        writer.write(reads(20, 30))
        assert on_postgres.staged() == left
    table = on_postgres.fenced()
    orphans = table.orphans(0)
    assert [each.name for each in orphans] == on_postgres.staged()
    table.remove(orphans)
    assert on_postgres.staged() == []


def test_trigger_of_the_table_may_drop_rows(on_postgres: PostgresPlace) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    on_postgres.run(
        "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.\"offset\" % 2 = 1 THEN RETURN NEW; END IF; RETURN NULL; END';"
        " CREATE TRIGGER odd BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION odd()"
    )
    writer.write(reads(10, 14))
    assert on_postgres.offsets() == [*range(10), 11, 13]


def test_table_that_was_created_again_is_refused(on_postgres: PostgresPlace) -> None:
    writer, late = Writer(on_postgres), Writer(on_postgres)
    writer.write(reads(0, 10))
    late.look(reads(10, 20))
    late.stage()
    on_postgres.run("CREATE TABLE copy AS SELECT * FROM rows; DROP TABLE rows")
    on_postgres.run("ALTER TABLE copy RENAME TO rows")
    with pytest.raises(TableChangedError):
        late.commit()
    with pytest.raises(TableRestoredError, match="To begin again: DELETE FROM") as refused:
        writer.look(reads(10, 20))
    # The error has the statement for a table that has the rows.
    restored = str(refused.value).partition("restored dump: ")[2]
    on_postgres.run(restored.partition(". To begin again")[0])
    writer.write(reads(10, 20))
    assert on_postgres.offsets() == list(range(20))


@pytest.mark.parametrize(
    "made",
    ["CREATE VIEW rows AS SELECT 1 AS a", "CREATE UNLOGGED TABLE rows (a int)"],
)
def test_view_and_unlogged_table_are_refused(on_postgres: PostgresPlace, made: str) -> None:
    on_postgres.run(made)
    with pytest.raises(TableError, match="it could lose rows that its fence counts"):
        Writer(on_postgres).look(reads(0, 10))


def test_partitioned_table_with_wider_types_accepts_rows(on_postgres: PostgresPlace) -> None:
    on_postgres.run(
        "CREATE DOMAIN name_of_topic AS text;"
        'CREATE TABLE rows (topic name_of_topic, partition bigint, "offset" numeric, value bytea,'
        " timestamp timestamptz, loaded_at timestamptz NOT NULL DEFAULT now())"
        " PARTITION BY LIST (partition);"
        "CREATE TABLE rows_0 PARTITION OF rows FOR VALUES IN (0)"
    )
    Writer(on_postgres).write(reads(0, 10))
    assert on_postgres.offsets() == list(range(10))


def test_column_that_the_table_computes_is_refused(on_postgres: PostgresPlace) -> None:
    on_postgres.run("CREATE TABLE rows (partition int GENERATED ALWAYS AS IDENTITY)")
    writer = Writer(on_postgres)
    writer.look(reads(0, 10))
    with pytest.raises(TableError, match="partition is computed by the table"):
        writer.stage(pa.schema([SCHEMA.field("partition")]))


def test_name_of_a_table_may_have_a_schema(on_postgres: PostgresPlace, postgres: str) -> None:
    table = spark_groups.postgres_table(postgres, f"{on_postgres.schema}.rows")
    writer = Writer(on_postgres)
    writer.table = table
    writer.write(reads(0, 10))
    assert on_postgres.offsets() == list(range(10))
    writer.table = spark_groups.postgres_table(postgres, "no_such_schema.rows")
    with pytest.raises(TableError, match='schema "no_such_schema" does not exist'):
        writer.write(reads(0, 10))


def test_comment_of_a_staging_table_has_table_group_and_time(on_postgres: PostgresPlace) -> None:
    writer = Writer(on_postgres, "it's")
    writer.look(reads(0, 10))
    writer.stage()
    statement = (
        "SELECT note->>'table', note->>'group', now() >= (note->>'staged_at')::timestamptz FROM"
        f" (SELECT obj_description('\"{on_postgres.staged()[0]}\"'::regclass)::jsonb AS note) AS t"
    )
    assert on_postgres.run(statement) == [("rows", "it's", True)]


def test_secrets_are_in_no_text(on_postgres: PostgresPlace) -> None:
    table = spark_groups.postgres_table(f"{on_postgres.dsn} password=hunter2", "rows")
    writer = table.task_writer(Attempt(GROUP, 0, "a"))
    assert "hunter2" not in f"{table} {table!r} {writer} {writer!r}"
    assert "dbname postgres" in str(table)
    for dsn in ("password=hunter2 =", "postgresql://u:hunter2@[", "hunter2"):
        with pytest.raises(OptionsError, match="is no connection string of libpq") as refused:
            spark_groups.postgres_table(dsn, "rows")
        assert "hunter2" not in str(refused.value)
        assert refused.value.__cause__ is None
    for login in ("u:hun@ter2", "u@corp:hunter2", "u:hun/ter2"):
        dsn = f"postgresql://{login}@db/lake"
        with pytest.raises(OptionsError, match="write it as %40") as refused:
            spark_groups.postgres_table(dsn, "rows")
        assert "ter2" not in str(refused.value)
    nowhere = spark_groups.postgres_table("host=/nowhere password=hunter2", "rows")
    with pytest.raises(TableError, match="PostgreSQL cannot be reached") as failed:
        nowhere.read(GROUP)
    assert "hunter2" not in str(failed.value)


def test_times_that_python_does_not_have(place: Database) -> None:
    writer = Writer(place)
    if isinstance(place, PostgresPlace):
        writer.write(reads(AFTER_PYTHON, AFTER_PYTHON + 3))
        assert place.offsets() == list(range(AFTER_PYTHON, AFTER_PYTHON + 3))
        return
    with pytest.raises(TableError, match="timestamp has a date or time outside the years 1 to"):
        writer.write(reads(AFTER_PYTHON, AFTER_PYTHON + 3))
    assert writer.write(reads(0, 10)).write == (reads(0, 10),)


def test_invalid_names_are_refused() -> None:
    for name in ("", "a.", "n" * 64):
        with pytest.raises(OptionsError, match="is not the name of a table"):
            spark_groups.postgres_table("dbname=x", name)
    with pytest.raises(OptionsError, match="name a file"):
        spark_groups.sqlite_table(":memory:", "rows")


def test_staged_rows_of_sqlite_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer = Writer(SqlitePlace(tmp_path / "rows.db"))
        writer.look(reads(0, 10))
        writer.stage()
    finally:
        os.umask(before)
    directory = tmp_path / "rows.db-staged"
    (staged,) = directory.iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (directory, staged)] == [0o700, 0o600]
