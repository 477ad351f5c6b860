"""Delta tables with a fence, on the real library: no Spark, no broker."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from spark_groups.errors import OptionsError, TableChangedError, TableError, TableRestoredError
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.delta import CHECKPOINT_INTERVAL, delta_table
from spark_groups.spark.tables.delta_log import DeltaLog
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import AFTER_PYTHON, GROUP, KEY, SCHEMA, reads, rows
from tests.spark.tables.delta_setup import DeltaWriter, entries, offsets
from workshop.parts.table_write import write_batch


def test_log_has_the_entries_and_each_commit_its_own_version(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(5, 10), reads(0, 3, partition=1))
    writer.write(reads(10, 30))
    table = deltalake.DeltaTable(tmp_path)
    assert table.version() == 1
    assert table.transaction_version("spark-groups/flights/AAAAAAAAAAAAAAAAAAAABw/0") == 30
    assert delta_table(tmp_path).read(GROUP).recorded_version == 1
    written = {Path(each).name for each in table.file_uris()}
    assert all(each.startswith("spark-groups-") for each in written)


def test_log_has_statistics_of_files(tmp_path: Path) -> None:
    DeltaWriter(tmp_path).write(reads(5, 10))
    (added,) = (
        json.loads(line)["add"]
        for line in (tmp_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        if '"add"' in line
    )
    stats = json.loads(added["stats"])
    assert stats["numRecords"] == 5
    assert stats["minValues"] == {
        "topic": "departures",
        "partition": 0,
        "offset": 5,
        "timestamp": "1970-01-01T00:00:00.000005Z",
    }
    assert stats["maxValues"]["offset"] == 9
    assert stats["nullCount"]["partition"] == 0
    skipping = deltalake.DeltaTable(tmp_path).to_pyarrow_dataset()
    assert skipping.to_table(filter=pa.dataset.field("offset") > 9).num_rows == 0


def test_times_that_python_does_not_have_are_written_without_statistics(tmp_path: Path) -> None:
    DeltaWriter(tmp_path).write(reads(AFTER_PYTHON, AFTER_PYTHON + 3))
    actions = deltalake.DeltaTable(tmp_path).get_add_actions(flatten=True)
    (added,) = pa.table(actions).to_pylist()
    assert (added["min.offset"], added["max.offset"]) == (AFTER_PYTHON, AFTER_PYTHON + 2)
    assert added["null_count.timestamp"] == 0
    assert added.get("min.timestamp") is None
    assert offsets(tmp_path) == list(range(AFTER_PYTHON, AFTER_PYTHON + 3))


@pytest.mark.parametrize("retries", [0, 15])
def test_library_refuses_an_application_id_from_an_older_snapshot(
    tmp_path: Path, retries: int
) -> None:
    """The fence needs this refusal if the library of another writer retries."""
    DeltaWriter(tmp_path).write(reads(0, 10))
    stale, other = deltalake.DeltaTable(tmp_path), deltalake.DeltaTable(tmp_path)

    def commit(table: deltalake.DeltaTable, app_id: str, version: int) -> None:
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(app_id, version)], max_commit_retries=retries
        )
        add = AddAction("x.parquet", 1, {}, 0, data_change=True, stats="{}")
        table.create_write_transaction(
            [add], "append", table.schema(), commit_properties=properties
        )

    commit(other, "one", 20)
    with pytest.raises(CommitFailedError):
        commit(stale, "one", 20)
    if retries:
        commit(stale, "two", 1)
        assert deltalake.DeltaTable(tmp_path).transaction_version("two") == 1
    else:
        with pytest.raises(CommitFailedError):
            commit(stale, "two", 1)


@pytest.mark.parametrize("commits", [1, 2, 3])
@pytest.mark.parametrize("is_staged", [False, True])
def test_table_that_was_created_again_is_refused(
    tmp_path: Path, commits: int, is_staged: bool
) -> None:
    """The log of the new table is shorter than that of the old one, as long, or longer.

    Args:
        commits: The number of commits of the new table; the old one had two.
        is_staged: Whether the zombie commits a batch that it compared with the old table.
    """
    path = tmp_path / "rows"
    zombie = DeltaWriter(path)
    zombie.write(reads(0, 2))
    zombie.write(reads(2, 4))
    zombie.look(reads(4, 6))
    shutil.rmtree(path)
    owner = DeltaWriter(path)
    for start in range(2, 2 + 2 * commits, 2):
        owner.write(reads(start, start + 2))
    if is_staged:
        with pytest.raises(TableChangedError, match="was dropped and created again"):
            zombie.commit()
    for _ in range(2):
        with pytest.raises(TableError, match="was dropped and created again; start the query"):
            zombie.look(reads(4, 6))
    assert offsets(path) == list(range(2, 2 + 2 * commits))
    shutil.rmtree(path)
    with pytest.raises(TableError, match="was dropped; start the query again"):
        zombie.look(reads(4, 6))


def test_log_that_was_cleaned_up_or_copied_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    writer = DeltaWriter(path)
    writer.write(reads(0, 2))
    writer.write(reads(2, 4))
    DeltaWriter(path).write(reads(4, 6))
    deltalake.DeltaTable(path).create_checkpoint()
    for version in range(2):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    writer.write(reads(6, 8))
    shutil.move(path, tmp_path / "old")
    shutil.copytree(tmp_path / "old", path, copy_function=shutil.copyfile)
    writer.write(reads(8, 10))
    assert offsets(path) == list(range(10))
    assert entries(path) == {KEY: Entry(0, 10)}


def test_log_that_is_cleaned_up_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, other = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    writer.write(reads(0, 2))
    for start in (2, 4):
        other.write(reads(start, start + 2))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    read = DeltaLog._read

    def cleaned_up(log: DeltaLog, name: str) -> bytes:
        (tmp_path / "_delta_log" / name).unlink(missing_ok=True)
        return read(log, name)

    def stage(ranges: Sequence[OffsetRange], attempt: Attempt) -> Sequence[Piece]:
        return [*writer.table.task_writer(attempt).write(map(rows, ranges), "0")]

    batch = Batch(GROUP, 0, (reads(6, 8),))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "_read", cleaned_up)
        write_batch(writer.table, batch, stage, Notices(), pause=lambda _: None)
    assert offsets(tmp_path) == list(range(8))
    assert entries(tmp_path) == {KEY: Entry(0, 8)}


def test_restore_stops_the_query_and_names_the_repair(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    deltalake.DeltaTable(tmp_path).restore(0)
    assert offsets(tmp_path) == list(range(10))
    # The restore has kept the entry, so an ordinary commit would lose rows 10 to 19 silently.
    assert entries(tmp_path)[KEY] == Entry(0, 20)
    for each in (writer, DeltaWriter(tmp_path)):
        with pytest.raises(TableRestoredError, match="table repair TABLE --group flights"):
            each.write(reads(20, 30))


def test_restore_between_comparison_and_commit_is_detected(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    writer.look(reads(20, 30))
    deltalake.DeltaTable(tmp_path).restore(0)
    with pytest.raises(TableChangedError):
        writer.commit()
    with pytest.raises(TableRestoredError):
        writer.look(reads(20, 30))


def test_restore_before_a_checkpoint_is_detected(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    table = deltalake.DeltaTable(tmp_path)
    table.restore(0)
    table.create_checkpoint()
    with pytest.raises(TableRestoredError):
        DeltaWriter(tmp_path).look(reads(20, 30))


def test_restore_that_a_cleaned_up_log_may_have_had_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DeltaWriter(tmp_path).write(reads(0, 10))
    table = deltalake.DeltaTable(tmp_path)
    for _ in range(2):
        table.alter.set_table_name("rows")
    table.create_checkpoint()
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert DeltaWriter(tmp_path).write(reads(10, 12)).write == (reads(10, 12),)
    assert "no longer has the commits 1 to 1" in caplog.text


@pytest.mark.parametrize(
    "parameters",
    [{"version": 0, "timestamp": None}, {"version": None, "timestamp": "2026-11-22 10:00:00"}],
)
def test_restore_by_spark_is_detected(tmp_path: Path, parameters: dict[str, object]) -> None:
    """Spark logs more parameters of a restore than the library; one to a time has no version.

    Args:
        parameters: The parameters in Spark's log.
    """
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    restored = {"timestamp": 0, "operation": "RESTORE", "operationParameters": parameters}
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    commit.write_text(json.dumps({"commitInfo": restored}) + "\n")
    for each in (writer, DeltaWriter(tmp_path)):
        with pytest.raises(TableRestoredError):
            each.look(reads(20, 30))


def test_version_of_a_restore_is_given_only_if_the_log_does_not_name_it(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    for start in (0, 10, 20):
        writer.write(reads(start, start + 10))
    to_time = {"operation": "RESTORE", "operationParameters": {"timestamp": "2026-11-22 10:00:00"}}
    commit = tmp_path / "_delta_log" / f"{3:020d}.json"
    commit.write_text(json.dumps({"commitInfo": to_time}) + "\n")
    table = delta_table(tmp_path)
    with pytest.raises(TableError, match=r"restored in version 3.*pass it as --restored-to"):
        table.held(GROUP)
    assert table.held(GROUP, 1) == {KEY: Entry(0, 20)}
    # The log names the last restore, which went back to a restore to a time.
    deltalake.DeltaTable(tmp_path).restore(0)
    deltalake.DeltaTable(tmp_path).restore(3)
    with pytest.raises(TableError, match=r"restored in version 3.*pass it as --restored-to"):
        table.held(GROUP)
    assert table.held(GROUP, 1) == {KEY: Entry(0, 20)}
    deltalake.DeltaTable(tmp_path).restore(0)
    assert table.held(GROUP) == {KEY: Entry(0, 10)}
    with pytest.raises(TableError, match=r"omit --restored-to: the log of .* names the version"):
        table.held(GROUP, 1)


def test_query_continues_after_a_restore_to_its_last_commit(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    table = deltalake.DeltaTable(tmp_path)
    table.delete("offset < 5")
    table.restore(0)
    writer.write(reads(10, 20))
    assert offsets(tmp_path) == list(range(20))


def test_query_continues_after_maintenance(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    table = deltalake.DeltaTable(tmp_path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    writer.write(reads(20, 30))
    table.update_incremental()
    table.alter.add_columns(
        deltalake.Schema.from_arrow(pa.schema([("carrier", pa.string())])).fields
    )
    writer.write(reads(30, 40))
    writer.write(reads(40, 50), schema=SCHEMA.append(pa.field("carrier", pa.string())))
    assert offsets(tmp_path) == list(range(50))
    carriers = deltalake.DeltaTable(tmp_path).to_pyarrow_table()["carrier"].to_pylist()
    assert carriers.count("AA") == 10
    assert carriers.count(None) == 40


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (
            {"delta.setTransactionRetentionDuration": "interval 7 days"},
            "deletes the entries of idle",
        ),
        ({"delta.columnMapping.mode": "name"}, "maps names of columns"),
    ],
)
def test_settings_that_break_the_fence_or_the_rows_are_refused(
    tmp_path: Path, properties: dict[str, str], problem: str
) -> None:
    path, writer = tmp_path / "rows", DeltaWriter(tmp_path / "rows")
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(SCHEMA), configuration=properties)
    with pytest.raises(TableError, match=problem):
        writer.look(reads(0, 10))


def test_constraint_is_refused(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "partition >= 0"})
    with pytest.raises(TableError, match="constraints, which this writer does not check"):
        writer.look(reads(10, 20))


def test_retention_that_is_set_later_is_refused(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    deltalake.DeltaTable(tmp_path).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 7 days"}
    )
    with pytest.raises(TableError, match="UNSET TBLPROPERTIES"):
        writer.look(reads(10, 20))


def test_commits_that_could_overwrite_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="allow_unsafe_rename"):
        delta_table("s3a://bucket/rows", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    delta_table(tmp_path, {"allow_unsafe_rename": "false"})


@pytest.mark.parametrize("is_ours", [True, False])
def test_checkpoints_are_written_and_keep_the_fence(tmp_path: Path, is_ours: bool) -> None:
    if not is_ours:
        deltalake.DeltaTable.create(tmp_path, deltalake.Schema.from_arrow(SCHEMA))
    writer = DeltaWriter(tmp_path)
    for index in range(2 * CHECKPOINT_INTERVAL + 3):
        writer.write(reads(index, index + 1))
    log = tmp_path / "_delta_log"
    checkpoints = sorted(int(each.name[:20]) for each in log.glob("*.checkpoint.parquet"))
    assert checkpoints == [CHECKPOINT_INTERVAL - 1, 2 * CHECKPOINT_INTERVAL - 1]
    for each in log.glob("*.json"):
        if each.stem.isdigit() and int(each.stem) <= checkpoints[-1]:
            each.unlink()
    assert entries(tmp_path) == {KEY: Entry(0, 2 * CHECKPOINT_INTERVAL + 3)}
    DeltaWriter(tmp_path).write(reads(2 * CHECKPOINT_INTERVAL + 3, 100))
    assert offsets(tmp_path) == list(range(100))


def test_own_commits_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    reader = writer.table._log
    monkeypatch.setattr(reader, "_read", lambda name: pytest.fail(f"{name} is read"))
    writer.write(reads(10, 20))
    writer.write(reads(20, 30))
    monkeypatch.undo()
    DeltaWriter(tmp_path).write(reads(30, 40))
    writer.write(reads(40, 50))
    assert offsets(tmp_path) == list(range(50))
