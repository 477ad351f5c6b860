"""`spark-groups table` and `reset-offsets --from-table`, on a real broker and real tables."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli import table_cli
from spark_groups.cli.table_plan import ChangeRow, ChangeView, OffsetsView, offset_row
from spark_groups.errors import TableChangedError, TableError, TableGapError, TableRestoredError
from spark_groups.fence.compare import compare
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.postgres import postgres_table
from spark_groups.spark.tables.table import Attempt, FencedTable
from spark_groups.types import OffsetRange, TopicId, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.commands import invoke
from tests.cli.printed import follow, printed
from tests.cli.rendered import cells
from tests.runtime.members import queries
from tests.spark.tables.batches_setup import rows
from tests.spark.tables.delta_setup import DeltaPlace, offsets
from tests.spark.tables.iceberg_tables import NAME, Lake
from tests.spark.tables.places import Database, PostgresPlace, SqlitePlace
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce, unstable_offset
from workshop.parts.waiting import wait_until

ADDRESS = ("--bootstrap-server", "localhost:1")


@dataclass(frozen=True)
class Kind:
    """A table of one kind, and operations on it by its own library.

    Args:
        text: Its name in commands.
        fenced: Opens it as a query does.
        offsets: Returns the offsets of its rows.
        delete_from: Deletes its rows from an offset on.
        restore_first: Restores it to the version of the first batch.
    """

    text: str
    fenced: Callable[[], FencedTable]
    offsets: Callable[[], list[int]]
    delete_from: Callable[[int], object]
    restore_first: Callable[[], object] | None = None


def delta_kind(request: pytest.FixtureRequest, directory: Path) -> Kind:
    place = DeltaPlace(directory / "rows")
    return Kind(
        f"delta:{place.path}",
        place.fenced,
        place.offsets,
        lambda offset: deltalake.DeltaTable(place.path).delete(f'"offset" >= {offset}'),
        place.restore_first,
    )


def database_kind(place: Database, text: str) -> Kind:
    return Kind(
        text,
        place.fenced,
        place.offsets,
        lambda offset: place.run(f'DELETE FROM rows WHERE "offset" >= {offset}'),
    )


def postgres_kind(request: pytest.FixtureRequest, directory: Path) -> Kind:
    place: PostgresPlace = request.getfixturevalue("on_postgres")
    return database_kind(place, f"postgres:{place.dsn}#rows")


def sqlite_kind(request: pytest.FixtureRequest, directory: Path) -> Kind:
    path = directory / "rows.db"
    return database_kind(SqlitePlace(path), f"sqlite:{path}#rows")


def iceberg_kind(request: pytest.FixtureRequest, directory: Path) -> Kind:
    lake = replace(Lake.at(directory), name="air")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in lake.properties.items():
        patch.setenv(f"PYICEBERG_CATALOG__AIR__{name.upper()}", value)
    # The library reads its configuration when it is imported.
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return Kind(
        f"iceberg:air/{lake.identifier}",
        lake.fenced,
        lake.offsets,
        lambda offset: lake.table().delete(f"offset >= {offset}"),
        lake.restore_first,
    )


KINDS = {
    "delta": delta_kind,
    "postgres": postgres_kind,
    "sqlite": sqlite_kind,
    "iceberg": iceberg_kind,
}


class Readers:
    """A topic with 30 records, a group without members and a table.

    Args:
        servers: The broker.
        topic: The topic; partition 0 is used.
        group_id: The group.
        kind: The table.
    """

    def __init__(self, servers: str, topic: str, group_id: str, kind: Kind) -> None:
        create_topic(servers, topic, 1)
        produce(servers, topic, [Row(b"x", partition=0)] * 30)
        self.servers, self.topic, self.group_id, self.kind = servers, topic, group_id, kind
        self.table = kind.text
        with Cluster(servers) as cluster:
            self.topic_id: TopicId = topic_id(cluster, topic)

    @property
    def entry(self) -> Entry:
        return self.entry_of(self.group_id)

    def entry_of(self, group_id: str) -> Entry:
        entries = self.kind.fenced().read(group_id).entries
        return entries[FenceKey(group_id, self.topic_id, 0)]

    def write(self, from_offset: int, until_offset: int, group_id: str | None = None) -> None:
        """Write a batch to the table, as a query does."""
        group_id = group_id or self.group_id
        table = self.kind.fenced()
        each = OffsetRange(self.topic_id, self.topic, 0, from_offset, until_offset)
        state = table.read(group_id)
        decision = compare(group_id, [each], state, table=str(table))
        attempt = Attempt(group_id, 0, uuid.uuid4().hex[:12])
        batches = [rows(part) for part in decision.write]
        pieces = [*table.task_writer(attempt).write(batches, "0")]
        table.commit(attempt, pieces, decision, state)

    def commit(self, offset: int) -> None:
        """Set the group's committed offset."""
        with Cluster(self.servers) as cluster:
            commit_outside(cluster, self.group_id, {TopicIdPartition(self.topic_id, 0): offset}, {})

    def reset(self, offset: int) -> str:
        """Reset the group; return what the command says about the next start."""
        words = ("--topic", f"{self.topic}:0", "--to-offset", str(offset), "--execute")
        code, view = self.run("reset-offsets", self.group_id, *words)
        assert code == 0
        return str(view["next_start"])

    def obey(self, commands: list[str]) -> list[dict[str, Any]]:
        """Run printed commands."""
        return follow(commands, self.servers, {"TABLE": self.table, "GROUP": self.group_id})

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run a command; return its exit code and its JSON document."""
        done = invoke(*words, "--bootstrap-server", self.servers, "--json")
        assert done.stdout, done.stderr or done.exception
        return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def made(
    request: pytest.FixtureRequest,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
) -> Readers:
    """Readers with a table of the kind in the parameter; default: Delta."""
    kind = KINDS[getattr(request, "param", "delta")](request, tmp_path)
    return Readers(kafka.bootstrap_servers, topic_name, group_id, kind)


@pytest.fixture
def catalog(made: Readers) -> Catalog:
    """The catalog of an Iceberg table."""
    return load_catalog("air")


every_kind = pytest.mark.parametrize("made", KINDS, indirect=True)
restorable = pytest.mark.parametrize("made", ["delta", "iceberg"], indirect=True)


@pytest.mark.broker
@every_kind
def test_gap_is_shown_and_accepted(made: Readers) -> None:
    made.write(0, 10)
    made.commit(10)
    asked = ("table", "offsets", made.table, "--group", made.group_id)
    code, view = made.run(*asked)
    assert (code, view["rows"][0]["topic"], view["rows"][0]["difference"]) == (0, made.topic, 0)
    made.commit(15)
    code, view = made.run(*asked)
    assert (code, view["rows"][0]["difference"]) == (1, 5)
    with pytest.raises(TableGapError):
        made.write(15, 20)
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--to-current")
    code, view = made.run(*change)
    assert (code, view["is_executed"], made.entry) == (0, False, Entry(0, 10))
    code, view = made.run(*change, "--execute")
    assert (code, view["is_executed"], made.entry) == (0, True, Entry(15, 15))
    made.write(15, 20)
    assert made.kind.offsets() == [*range(10), *range(15, 20)]


@pytest.mark.broker
def test_committed_offset_that_is_unknown_sets_no_entry(made: Readers) -> None:
    made.write(0, 10)
    made.commit(15)
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--to-current")
    with unstable_offset(made.servers, made.group_id, made.topic, 0, 20):
        _, view = made.run("table", "offsets", made.table, "--group", made.group_id)
        assert view["rows"][0]["remark"] == (
            "its committed offset is unknown: UNSTABLE_OFFSET_COMMIT"
        )
        done = invoke(*change, "--execute", "--bootstrap-server", made.servers)
        assert f"is unknown for {made.topic} 0: UNSTABLE_OFFSET_COMMIT" in str(done.exception)
        assert made.entry == Entry(0, 10)
    code, _ = made.run(*change, "--execute")
    assert (code, made.entry) == (0, Entry(15, 15))


@pytest.mark.broker
@every_kind
def test_entry_is_set_back_only_with_backwards(made: Readers) -> None:
    made.write(0, 10)
    made.commit(6)
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--execute")
    # After a crash, a table may be ahead of the group's committed offsets, which is no error.
    code, view = made.run(*change, "--to-current")
    assert (code, view["refusal"]) == (1, "There are no entries to change.")
    code, view = made.run(*change, "--topic", f"{made.topic}:0=4")
    assert (code, made.entry) == (1, Entry(0, 10))
    # Then its rows are not to be written again.
    code, view = made.run(*change, "--to-current", "--backwards")
    assert (code, made.entry) == (1, Entry(0, 10))
    assert "the table has 4 offsets more, and no reset explains it" in view["rows"][0]["remark"]
    said = made.reset(4)
    code, view = made.run(*change, "--to-current", "--topic", f"{made.topic}:1", "--backwards")
    assert (code, view["rows"], made.entry) == (1, [], Entry(0, 10))
    made.kind.delete_from(4)
    (view,) = made.obey(printed(said))
    assert made.entry == Entry(0, 4)
    # Kafka counts two offsets, but the table has had six.
    assert "the table has 6 offsets there" in view["rows"][0]["remark"]
    made.write(4, 12)
    assert made.kind.offsets() == list(range(12))


@pytest.mark.broker
@every_kind
def test_skipped_records_are_written_again_as_the_warning_says(made: Readers) -> None:
    made.write(0, 10)
    made.write(10, 20)
    each = OffsetRange(made.topic_id, made.topic, 0, 4, 8)
    state = made.kind.fenced().read(made.group_id)
    (skip,) = compare(made.group_id, [each], state, table="rows").skips
    # Batches that are skipped are committed to Kafka, until the queries are stopped.
    made.commit(16)
    made.kind.delete_from(4)
    assert len(made.obey(printed(str(skip)))) == 2
    code, view = made.run("table", "offsets", made.table, "--group", made.group_id)
    assert (code, view["rows"][0]["committed_offset"], made.entry) == (0, 4, Entry(0, 4))
    made.write(4, 22)
    assert made.kind.offsets() == list(range(22))


@pytest.mark.broker
@every_kind
def test_entry_that_changed_meanwhile_is_not_set(
    made: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(0, 10)
    made.commit(10)
    planned = table_cli.plan_change

    def slow(*args: object, **settings: object) -> object:
        made.write(10, 12)
        return planned(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(table_cli, "plan_change", slow)
    words = ("--table", made.table, "--topic", f"{made.topic}:0=20", "--execute")
    done = invoke("table", "set-offsets", made.group_id, *words, "--bootstrap-server", made.servers)
    assert isinstance(done.exception, TableChangedError)
    assert made.entry == Entry(0, 12)


@pytest.mark.broker
@restorable
def test_restored_table_is_repaired_and_read_again(made: Readers) -> None:
    made.write(0, 10)
    made.write(10, 20)
    made.commit(20)
    fix = ("table", "repair", made.table, "--group", made.group_id, "--execute")
    code, view = made.run(*fix)
    assert (code, view["is_executed"]) == (1, False)
    assert "nothing to repair" in str(view["refusal"])
    assert made.kind.restore_first is not None
    made.kind.restore_first()
    code, view = made.run("table", "offsets", made.table)
    assert (code, len(view["problems"])) == (1, 1)
    change = ("table", "set-offsets", made.group_id, "--table", made.table)
    assert made.run(*change, "--topic", f"{made.topic}:0=25", "--execute")[0] == 1
    done = invoke(
        "reset-offsets", made.group_id, "--from-table", made.table, "--all-topics",
        "--bootstrap-server", made.servers,
    )  # fmt: skip
    assert isinstance(done.exception, TableRestoredError)
    code, view = made.run(*fix[:-1])
    assert (code, made.entry) == (0, Entry(0, 20))
    code, view = made.run(*fix)
    assert (code, made.entry) == (0, Entry(0, 10))
    (view,) = made.obey(printed(str(view["next_step"])))
    assert (view["rows"][0]["new_offset"], view["is_executed"]) == (10, True)
    made.write(10, 30)
    assert made.kind.offsets() == list(range(30))


@pytest.mark.broker
@restorable
def test_restored_table_is_repaired_by_offsets_of_the_user(made: Readers) -> None:
    made.write(0, 10)
    made.write(10, 20)
    assert made.kind.restore_first is not None
    made.kind.restore_first()
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--execute")
    code, _ = made.run(*change, "--topic", f"{made.topic}:0=10", "--backwards")
    assert (code, made.entry) == (0, Entry(0, 10))
    made.write(10, 30)
    assert made.kind.offsets() == list(range(30))


@pytest.mark.broker
@pytest.mark.parametrize("made", ["postgres", "sqlite"], indirect=True)
def test_table_that_restores_its_fence_is_not_repaired(made: Readers) -> None:
    made.write(0, 10)
    code, view = made.run("table", "repair", made.table, "--group", made.group_id, "--execute")
    assert (code, "nothing to repair" in view["refusal"], made.entry) == (1, True, Entry(0, 10))


@pytest.mark.broker
@pytest.mark.parametrize("made", ["postgres"], indirect=True)
def test_dropped_table_is_an_error_with_the_statement_that_repairs_it(
    made: Readers, on_postgres: PostgresPlace
) -> None:
    made.write(0, 10)
    on_postgres.run("DROP TABLE rows")
    for words in (
        ("table", "offsets", made.table),
        ("table", "set-offsets", made.group_id, "--table", made.table, "--to-current"),
        ("table", "repair", made.table, "--group", made.group_id),
        ("reset-offsets", made.group_id, "--from-table", made.table, "--all-topics"),
    ):
        done = invoke(*words, "--bootstrap-server", made.servers)
        assert isinstance(done.exception, TableRestoredError)
        assert "DELETE FROM" in str(done.exception)


@pytest.mark.broker
@every_kind
def test_entries_of_another_group_are_copied_if_there_are_none(made: Readers) -> None:
    other = f"{made.group_id}-other"
    made.write(0, 10, other)
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--from-group")
    code, view = made.run(*change, f"{other}--typo", "--execute")
    assert (code, "has no entries of the group" in view["refusal"]) == (1, True)
    code, view = made.run(*change, other)
    assert (code, view["is_executed"], view["rows"][0]["new_next_offset"]) == (0, False, 10)
    code, view = made.run(*change, other, "--execute")
    assert (code, made.entry, made.entry_of(other)) == (0, Entry(0, 10), Entry(0, 10))
    # The group has the records of the other one, and continues from there.
    made.write(5, 15)
    assert made.kind.offsets() == list(range(15))
    code, view = made.run(*change, other, "--execute")
    assert (code, view["rows"][0]["is_refused"], made.entry) == (1, True, Entry(0, 15))


@pytest.mark.broker
def test_entries_are_only_copied_from_a_group_without_members(made: Readers) -> None:
    other = f"{made.group_id}-other"
    made.write(0, 10, other)
    change = ("table", "set-offsets", made.group_id, "--table", made.table, "--from-group", other)
    with queries(made.servers, other, made.topic) as start:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        code, view = made.run(*change, "--execute")
    assert (code, f"the group '{other}' is inactive" in view["refusal"]) == (1, True)


@pytest.mark.broker
@every_kind
def test_group_without_entries_is_an_error_that_names_the_groups_with_entries(
    made: Readers,
) -> None:
    made.write(0, 10)
    words = ("table", "offsets", made.table, "--group", "typo")
    done = invoke(*words, "--bootstrap-server", made.servers)
    assert isinstance(done.exception, TableError)
    assert f"no entries of the group 'typo', but of {made.group_id}" in str(done.exception)


@pytest.mark.broker
@pytest.mark.parametrize("made", ["iceberg"], indirect=True)
def test_repair_is_refused_if_the_needed_snapshots_have_expired(
    made: Readers, catalog: Catalog
) -> None:
    made.write(0, 10)
    made.write(10, 20)
    first, _ = catalog.load_table(NAME).snapshots()
    assert made.kind.restore_first is not None
    made.kind.restore_first()
    table = catalog.load_table(NAME)
    table.append(table.scan().to_arrow().slice(0, 1))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    words = ("table", "repair", made.table, "--group", made.group_id, "--execute")
    done = invoke(*words, "--bootstrap-server", made.servers)
    assert isinstance(done.exception, TableError)
    assert "have expired" in str(done.exception)
    assert made.entry == Entry(0, 20)
    # The rows show up to where the table has the partition.
    assert sorted(set(made.kind.offsets())) == list(range(10))
    commands = printed(str(done.exception).replace("TOPIC:PARTITION=OFFSET", f"{made.topic}:0=10"))
    made.obey(commands)
    made.write(10, 30)
    # Somebody else has added one row twice.
    assert (set(made.kind.offsets()), len(made.kind.offsets())) == (set(range(30)), 31)


@pytest.mark.broker
@pytest.mark.parametrize("made", ["delta"], indirect=True)
def test_repair_remembers_rows_before_an_accepted_gap(made: Readers) -> None:
    made.write(0, 5, "other")
    made.write(0, 10)
    made.commit(15)
    accept = ("table", "set-offsets", made.group_id, "--table", made.table, "--to-current")
    assert made.run(*accept, "--execute")[0] == 0
    made.write(15, 20)
    made.commit(20)
    deltalake.DeltaTable(made.table.removeprefix("delta:")).restore(0)
    fix = ("table", "repair", made.table, "--group", made.group_id, "--execute")
    code, view = made.run(*fix)
    assert (code, made.entry) == (0, Entry(0, 0))
    with pytest.raises(TableGapError):
        made.write(15, 20)
    (view,) = made.obey(printed(str(view["next_step"])))
    assert view["rows"][0]["new_offset"] == 0
    made.write(0, 30)
    assert made.kind.offsets() == sorted([*range(5), *range(30)])


@pytest.mark.broker
def test_repair_after_a_restore_of_a_restored_version(made: Readers) -> None:
    for start in (0, 10, 20):
        made.write(start, start + 10)
    # Version 3 has the rows of version 1, and so has version 5, which restores version 3.
    deltalake.DeltaTable(made.table.removeprefix("delta:")).restore(1)
    deltalake.DeltaTable(made.table.removeprefix("delta:")).restore(0)
    deltalake.DeltaTable(made.table.removeprefix("delta:")).restore(3)
    assert made.kind.offsets() == list(range(20))
    fix = ("table", "repair", made.table, "--group", made.group_id, "--execute")
    assert (made.run(*fix)[0], made.entry) == (0, Entry(0, 20))
    made.write(20, 30)
    assert made.kind.offsets() == list(range(30))


def test_only_orphans_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    table, topic = delta_table(path), uuid.UUID(int=7)
    state = table.read("g")
    decision = compare("g", [OffsetRange(topic, "t", 0, 0, 10)], state, table=str(table))
    attempt = Attempt("g", 0, "a")
    batches = [rows(each) for each in decision.write]
    pieces = [*table.task_writer(attempt).write(batches, "0")]
    table.commit(attempt, pieces, decision, state)
    lost = next(table.task_writer(attempt).write(batches, "1")).name
    young = next(table.task_writer(Attempt("g", 1, "b")).write(batches, "0")).name
    # The current version lacks these rows, but an older one has them.
    deltalake.DeltaTable(path).delete('"offset" < 5')
    old_s = time.time() - 2 * 86_400
    for each in path.rglob("*.parquet"):
        if each.name != young:
            os.utime(each, (old_s, old_s))
    before = {each for each in path.rglob("*") if each.is_file()}
    asked = ("table", "vacuum", f"delta:{path}", "--older-than", "1d")
    planned = invoke(*asked, "--json")
    found = [each["name"] for each in json.loads(planned.stdout)["rows"]]
    assert found == ["spark-groups-0-a-1-0.parquet"] == [lost]
    assert {each for each in path.rglob("*") if each.is_file()} == before
    done = invoke(*asked, "--execute")
    assert (done.exit_code, "1 orphans with" in done.stdout) == (0, True)
    left = {each for each in path.rglob("*") if each.is_file()}
    assert before - left == {path / lost}
    assert offsets(path) == list(range(5, 10))
    assert deltalake.DeltaTable(path, version=0).to_pyarrow_table().num_rows == 10


def staged_in(kind: Kind, task: str) -> str:
    """Return the name of a piece that an attempt has staged and never commits."""
    attempt = Attempt("g", 1, uuid.uuid4().hex[:12])
    each = OffsetRange(uuid.UUID(int=7), "t", 0, 0, 10)
    return next(kind.fenced().task_writer(attempt).write([rows(each)], task)).name


def vacuumed(kind: Kind, *words: str) -> list[str]:
    """Return the orphans that the command lists."""
    done = invoke("table", "vacuum", kind.text, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return [each["name"] for each in json.loads(done.stdout)["rows"]]


def test_staging_tables_of_postgresql_are_dropped_by_age(
    request: pytest.FixtureRequest, on_postgres: PostgresPlace, tmp_path: Path
) -> None:
    kind = postgres_kind(request, tmp_path)
    lost, young = staged_in(kind, "0"), staged_in(kind, "1")
    other = postgres_table(on_postgres.dsn, "other").task_writer(Attempt("g", 1, "b"))
    foreign = next(other.write([rows(OffsetRange(uuid.UUID(int=7), "t", 0, 0, 1))], "0")).name
    on_postgres.run('CREATE TABLE "spark-groups-notes" (text text)')
    for name, table in ((lost, "rows"), (foreign, "other")):
        note = json.dumps({"table": table, "group": "g", "staged_at": "2020-01-01 00:00:00+00"})
        on_postgres.run(f"COMMENT ON TABLE \"{name}\" IS '{note}'")
    assert vacuumed(kind) == [lost]
    assert on_postgres.staged() == sorted([lost, young, foreign, "spark-groups-notes"])
    assert vacuumed(kind, "--execute") == [lost]
    assert on_postgres.staged() == sorted([young, foreign, "spark-groups-notes"])


@pytest.mark.parametrize("name", ["sqlite", "iceberg"])
def test_files_of_crashed_attempts_are_deleted_by_age(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    kind = KINDS[name](request, tmp_path)
    table = kind.fenced()
    for batch, start in enumerate((0, 10)):
        attempt = Attempt("g", batch, uuid.uuid4().hex[:12])
        state = table.read("g")
        each = OffsetRange(uuid.UUID(int=7), "t", 0, start, start + 10)
        decision = compare("g", [each], state, table=str(table))
        pieces = [*table.task_writer(attempt).write([rows(each)], "0")]
        table.commit(attempt, pieces, decision, state)
    kind.delete_from(15)
    lost, young = Path(staged_in(kind, "0")).name, Path(staged_in(kind, "1")).name
    old_s = time.time() - 2 * 86_400
    for path in tmp_path.rglob("spark-groups-*"):
        if path.name != young:
            os.utime(path, (old_s, old_s))
    before = set(tmp_path.rglob("spark-groups-*"))
    assert vacuumed(kind) == [lost]
    assert vacuumed(kind, "--execute") == [lost]
    left = set(tmp_path.rglob("spark-groups-*"))
    assert {path.name for path in before - left} == {lost}
    assert kind.offsets() == list(range(15))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("vacuum", "delta:/t", "--older-than", "5m"), "at least 3600 s"),
        (("vacuum", "/t"), "is not delta:PATH"),
        (("set-offsets", "g", "--table", "delta:/t", *ADDRESS), "choose one of"),
        (
            ("set-offsets", "g", "--table", "delta:/t", "--to-current", "--topic", ":0", *ADDRESS),
            "is neither TOPIC nor TOPIC:0,1,2",
        ),
        (
            ("set-offsets", "g", "--table", "delta:/t", "--from-group", "g", *ADDRESS),
            "name another group",
        ),
        (
            ("set-offsets", "g", "--table", "delta:/t", "--topic", "t:0", *ADDRESS),
            "TOPIC:PARTITION=OFFSET",
        ),
    ],
)
def test_wrong_usage_is_refused(words: tuple[str, ...], problem: str) -> None:
    done = invoke("table", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in " ".join(done.stderr.replace("│", " ").split())


def test_tables_use_the_words_of_kafkas_tool() -> None:
    row = offset_row(FenceKey("g", uuid.UUID(int=7), 0), Entry(5, 20), "flights", 23)
    shown = cells(
        table_cli.render_offsets(
            OffsetsView(table="t", version=1, rows=(row,), problems=("it was restored",))
        )
    )
    head = ["GROUP", "TOPIC", "PARTITION", "TABLE-START", "TABLE-OFFSET", "CURRENT-OFFSET"]
    assert shown == [
        [*head, "DIFFERENCE", "REMARK"],
        ["g", "flights", "0", "5", "20", "23", "3", row.remark],
        ["Error: it was restored"],
    ]
    change = ChangeRow(
        topic="flights", partition=0, remark="new entry", new_start_offset=5, new_next_offset=20
    )
    view = ChangeView(table="t", group_id="g", rows=(change,), next_step="Then run: this")
    assert cells(table_cli.render_change(view)) == [
        ["GROUP", "TOPIC", "PARTITION", "TABLE-OFFSET", "NEW-START", "NEW-OFFSET", "REMARK"],
        ["g", "flights", "0", "—", "5", "20", "new entry"],
        ["No action is performed: --execute is missing."],
        ["Then run: this"],
    ]
    refused = replace(view, refusal="no")
    assert cells(table_cli.render_change(refused))[-1] == ["Error: no"]


def test_help_has_an_example() -> None:
    for name in ("offsets", "set-offsets", "repair", "vacuum"):
        done = invoke("table", name, "--help")
        assert (done.exit_code, "Example: spark-groups table" in done.stdout) == (0, True)
