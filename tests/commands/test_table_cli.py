"""`spark-groups table` and `reset-offsets --from-table`, on a real broker and Delta tables."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import deltalake
import pytest

from spark_groups.commands import table_cli
from spark_groups.errors import TableChangedError, TableGapError, TableRestoredError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.fence import Entry, FenceKey, compare
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import OffsetRange, TopicId, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.brokers import Row, create_topic, produce
from tests.ops.commands import invoke
from tests.spark.tables.test_delta import offsets, rows
from tests.wire.test_cluster import topic_id

ADDRESS = ("--bootstrap-server", "localhost:1")


class Place:
    """A topic with 30 records, a group without members and a table.

    Args:
        servers: The broker.
        topic: The topic; partition 0 is used.
        group_id: The group.
        path: The table.
    """

    def __init__(self, servers: str, topic: str, group_id: str, path: Path) -> None:
        create_topic(servers, topic, 1)
        produce(servers, topic, [Row(b"x", partition=0)] * 30)
        self.servers, self.topic, self.group_id, self.path = servers, topic, group_id, path
        with Cluster(servers) as cluster:
            self.topic_id: TopicId = topic_id(cluster, topic)

    @property
    def table(self) -> str:
        return f"delta:{self.path}"

    @property
    def entry(self) -> Entry:
        entries = delta_table(self.path).read(self.group_id).entries
        return entries[FenceKey(self.group_id, self.topic_id, 0)]

    def write(self, from_offset: int, until_offset: int) -> None:
        """Write a batch to the table, as a query does."""
        table = delta_table(self.path)
        each = OffsetRange(self.topic_id, self.topic, 0, from_offset, until_offset)
        state = table.read(self.group_id)
        decision = compare(self.group_id, [each], state, table=str(table))
        attempt = Attempt(self.group_id, 0, uuid.uuid4().hex[:12])
        batches = [rows(part) for part in decision.write]
        pieces = [*table.task_writer(attempt).write(batches, "0")]
        table.commit(attempt, pieces, decision, state)

    def commit(self, offset: int) -> None:
        """Set the group's committed offset."""
        with Cluster(self.servers) as cluster:
            commit_outside(cluster, self.group_id, {TopicIdPartition(self.topic_id, 0): offset}, {})

    def run(self, *words: str) -> tuple[int, dict[str, object]]:
        """Run a command; return its exit code and its JSON document."""
        done = invoke(*words, "--bootstrap-server", self.servers, "--json")
        assert done.stdout, done.stderr or done.exception
        return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def place(kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path) -> Place:
    return Place(kafka.bootstrap_servers, topic_name, group_id, tmp_path / "rows")


@pytest.mark.broker
def test_gap_is_shown_and_accepted(place: Place) -> None:
    place.write(0, 10)
    place.commit(10)
    asked = ("table", "offsets", place.table, "--group", place.group_id)
    code, view = place.run(*asked)
    assert (code, view["rows"][0]["topic"], view["rows"][0]["difference"]) == (0, place.topic, 0)
    place.commit(15)
    code, view = place.run(*asked)
    assert (code, view["rows"][0]["difference"]) == (1, 5)
    with pytest.raises(TableGapError):
        place.write(15, 20)
    change = ("table", "set-offsets", place.group_id, "--table", place.table, "--to-current")
    code, view = place.run(*change)
    assert (code, view["is_executed"], place.entry) == (0, False, Entry(0, 10))
    code, view = place.run(*change, "--execute")
    assert (code, view["is_executed"], place.entry) == (0, True, Entry(15, 15))
    place.write(15, 20)
    assert offsets(place.path) == [*range(10), *range(15, 20)]


@pytest.mark.broker
def test_entry_goes_back_only_if_wanted(place: Place) -> None:
    place.write(0, 10)
    place.commit(4)
    change = ("table", "set-offsets", place.group_id, "--table", place.table, "--execute")
    # After a crash, a table is ahead of the group's commit: that is not to be undone.
    code, view = place.run(*change, "--to-current")
    assert (code, view["refusal"]) == (1, "There are no entries to change.")
    code, view = place.run(*change, "--topic", f"{place.topic}:0=4")
    assert (code, place.entry) == (1, Entry(0, 10))
    deltalake.DeltaTable(place.path).delete('"offset" >= 4')
    code, view = place.run(*change, "--to-current", "--backwards")
    assert (code, place.entry) == (0, Entry(0, 4))
    place.write(4, 12)
    assert offsets(place.path) == list(range(12))


@pytest.mark.broker
def test_entry_that_changed_meanwhile_is_not_set(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(0, 10)
    place.commit(10)
    planned = table_cli.plan_change

    def slow(*args: object, **settings: object) -> object:
        place.write(10, 12)
        return planned(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(table_cli, "plan_change", slow)
    words = ("--table", place.table, "--topic", f"{place.topic}:0=20", "--execute")
    done = invoke(
        "table", "set-offsets", place.group_id, *words, "--bootstrap-server", place.servers
    )
    assert isinstance(done.exception, TableChangedError)
    assert place.entry == Entry(0, 12)


@pytest.mark.broker
def test_restored_table_is_repaired_and_read_again(place: Place) -> None:
    place.write(0, 10)
    place.write(10, 20)
    place.commit(20)
    fix = ("table", "repair", place.table, "--group", place.group_id, "--execute")
    code, view = place.run(*fix)
    assert (code, view["is_executed"]) == (1, False)
    assert "nothing to repair" in str(view["refusal"])
    deltalake.DeltaTable(place.path).restore(0)
    code, view = place.run("table", "offsets", place.table)
    assert (code, len(view["problems"])) == (1, 1)
    change = ("table", "set-offsets", place.group_id, "--table", place.table)
    assert place.run(*change, "--topic", f"{place.topic}:0=25", "--execute")[0] == 1
    done = invoke(
        "reset-offsets", place.group_id, "--from-table", place.table, "--all-topics",
        "--bootstrap-server", place.servers,
    )  # fmt: skip
    assert isinstance(done.exception, TableRestoredError)
    code, view = place.run(*fix[:-1])
    assert (code, place.entry) == (0, Entry(0, 20))
    code, view = place.run(*fix)
    assert (code, place.entry) == (0, Entry(0, 10))
    words = str(view["next_step"]).removeprefix("Then run: spark-groups ").split()
    code, view = place.run(*words)
    assert (code, view["rows"][0]["new_offset"], view["is_executed"]) == (0, 10, True)
    place.write(10, 30)
    assert offsets(place.path) == list(range(30))


@pytest.mark.broker
def test_restore_of_a_restore_is_followed(place: Place) -> None:
    for start in (0, 10, 20):
        place.write(start, start + 10)
    # Version 3 has the rows of version 1, and so has version 5, which restores version 3.
    deltalake.DeltaTable(place.path).restore(1)
    deltalake.DeltaTable(place.path).restore(0)
    deltalake.DeltaTable(place.path).restore(3)
    assert offsets(place.path) == list(range(20))
    fix = ("table", "repair", place.table, "--group", place.group_id, "--execute")
    assert (place.run(*fix)[0], place.entry) == (0, Entry(0, 20))
    place.write(20, 30)
    assert offsets(place.path) == list(range(30))


def test_orphans_are_deleted_and_nothing_else(tmp_path: Path) -> None:
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
    # Spark's way writes a directory; this attempt died before its commit.
    inside = path / "spark-groups-1-c" / "_temporary" / "part-0.parquet"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"rows")
    # No version has these rows any more, but an older one can still be read.
    deltalake.DeltaTable(path).delete('"offset" < 5')
    old_s = time.time() - 2 * 86_400
    for each in path.rglob("*.parquet"):
        if each.name != young:
            os.utime(each, (old_s, old_s))
    before = {each for each in path.rglob("*") if each.is_file()}
    asked = ("table", "vacuum", f"delta:{path}", "--older-than", "1d")
    planned = invoke(*asked, "--json")
    found = [each["name"] for each in json.loads(planned.stdout)["rows"]]
    assert found == ["spark-groups-0-a-1-0.parquet", "spark-groups-1-c/_temporary/part-0.parquet"]
    assert {each for each in path.rglob("*") if each.is_file()} == before
    done = invoke(*asked, "--execute")
    assert (done.exit_code, "2 files with" in done.stdout) == (0, True)
    left = {each for each in path.rglob("*") if each.is_file()}
    assert before - left == {path / lost, inside}
    assert not (path / "spark-groups-1-c").exists()
    assert offsets(path) == list(range(5, 10))
    assert deltalake.DeltaTable(path, version=0).to_pyarrow_table().num_rows == 10


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("vacuum", "delta:/t", "--older-than", "5m"), "at least 3600 s"),
        (("vacuum", "/t"), "is not delta:PATH"),
        (("set-offsets", "g", "--table", "delta:/t", *ADDRESS), "choose one of"),
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


def test_help_has_an_example() -> None:
    for name in ("offsets", "set-offsets", "repair", "vacuum"):
        done = invoke("table", name, "--help")
        assert (done.exit_code, "Example: spark-groups table" in done.stdout) == (0, True)
