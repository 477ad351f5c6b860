"""Iceberg tables with a fence, on the real library and real catalogs: no Spark, no broker."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField, StringType

from spark_groups.errors import OptionsError, TableChangedError, TableError, TableRestoredError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, EntryChange
from spark_groups.spark.tables.iceberg import FENCE, iceberg_table, versions
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import topic_id_text
from tests.spark.tables.batches_setup import GROUP, KEY, SCHEMA, TOPIC, reads, rows
from tests.spark.tables.every_table_setup import CATALOGS, place_of
from tests.spark.tables.iceberg_tables import Lake, fence_of
from tests.spark.tables.places import Writer


class OwnCatalog(SqlCatalog):
    """A catalog of a class of the application's, whose properties name no type."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path)


@pytest.fixture(params=CATALOGS)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return place_of(request.param, request, tmp_path)


def test_fence_is_in_the_property_and_in_each_snapshot(any_lake: Lake) -> None:
    writer = Writer(any_lake)
    writer.write(reads(0, 10))
    writer.write(reads(10, 30), reads(5, 7, partition=1))
    table = any_lake.table()
    text = fence_of(table.properties)
    assert text is not None
    topic = topic_id_text(TOPIC)
    assert json.loads(text) == {"version": 2, "entries": {topic: {"0": [0, 30], "1": [5, 7]}}}
    summaries = [each.summary for each in table.snapshots()]
    assert fence_of(summaries[-1].additional_properties) == text
    assert fence_of(summaries[0].additional_properties) is not None
    assert writer.write(reads(0, 30)).write == ()
    assert any_lake.table().metadata.last_sequence_number == 2


@pytest.mark.parametrize("retries", [None, "0"])
def test_library_commits_from_a_stale_table_unless_it_must_not_retry(
    lake: Lake, retries: str | None
) -> None:
    """The reason why commits of this package are tried once."""
    Writer(lake).write(reads(0, 10))
    if retries is not None:
        lake.table().transaction().set_properties(
            {TableProperties.COMMIT_NUM_RETRIES: retries}
        ).commit_transaction()
    stale, batch = lake.table(), pa.Table.from_batches([rows(reads(10, 20))])
    lake.table().append(batch)
    if retries is None:
        stale.append(batch)
        assert lake.offsets() == sorted([*range(10), *range(10, 20), *range(10, 20)])
    else:
        with pytest.raises(CommitFailedException):
            stale.append(batch)


def test_retries_of_other_writers_are_not_changed(lake: Lake) -> None:
    writer = Writer(lake)
    for start in (0, 10):
        writer.write(reads(start, start + 10))
    assert TableProperties.COMMIT_NUM_RETRIES not in lake.table().properties


def test_rollback_stops_the_query_and_names_the_repair(any_lake: Lake) -> None:
    writer = Writer(any_lake)
    writer.write(reads(0, 10))
    (first,) = any_lake.table().snapshots()
    writer.write(reads(10, 20))
    any_lake.set_back(first.snapshot_id)
    assert any_lake.offsets() == list(range(10))
    # The rollback has kept the property, so an ordinary commit would lose rows 10 to 19 silently.
    assert any_lake.entries()[KEY] == Entry(0, 20)
    for each in (writer, Writer(any_lake)):
        with pytest.raises(TableRestoredError, match="repair TABLE --group flights") as caught:
            each.write(reads(20, 30))
        assert "restored to its version 1" in str(caught.value)
    # A later snapshot of another writer does not hide it, nor does maintenance.
    any_lake.foreign_append()
    any_lake.table().maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(TableRestoredError):
        Writer(any_lake).look(reads(20, 30))


def test_query_continues_after_its_entries_were_repaired(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    (first,) = lake.table().snapshots()
    writer.write(reads(10, 20))
    lake.set_back(first.snapshot_id)
    table = lake.fenced()
    state = table.read(GROUP)
    decision = Decision(changes=(EntryChange(KEY, state.entries[KEY], Entry(0, 10)),))
    table.commit(Attempt(GROUP, 0, "repair"), [], decision, state)
    writer.write(reads(10, 30))
    assert lake.offsets() == list(range(30))


def test_rollback_between_comparison_and_commit_is_detected(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    (first,) = lake.table().snapshots()
    writer.write(reads(10, 20))
    writer.look(reads(20, 30))
    lake.set_back(first.snapshot_id)
    with pytest.raises(TableChangedError):
        writer.commit()
    with pytest.raises(TableRestoredError):
        writer.look(reads(20, 30))


def test_rollback_of_one_group_stops_only_that_group_and_stays_visible(lake: Lake) -> None:
    one, other = Writer(lake), Writer(lake, "audit")
    one.write(reads(0, 10))
    other.write(reads(0, 10))
    one.write(reads(10, 20))
    kept = lake.table().current_snapshot()
    other.write(reads(10, 20))
    lake.set_back(kept.snapshot_id)
    # The group that lost no row continues, and its commit repeats the entries of the other.
    one.write(reads(20, 30))
    with pytest.raises(TableRestoredError, match="table repair TABLE --group audit"):
        other.look(reads(20, 30))
    assert lake.entries()[KEY] == Entry(0, 30)


def test_rollback_to_before_a_groups_first_commit_is_detected(lake: Lake) -> None:
    Writer(lake).write(reads(0, 10))
    (first,) = lake.table().snapshots()
    Writer(lake, "audit").write(reads(0, 10))
    lake.set_back(first.snapshot_id)
    with pytest.raises(TableRestoredError, match="restored to its version 0"):
        Writer(lake, "audit").look(reads(10, 20))


def test_rollback_is_detected_after_snapshots_have_expired(lake: Lake) -> None:
    Writer(lake).write(reads(0, 10))
    kept = lake.table().current_snapshot()
    Writer(lake, "audit").write(reads(0, 10))
    lake.set_back(kept.snapshot_id)
    lake.foreign_append()
    lake.table().maintenance.expire_snapshots().by_id(kept.snapshot_id).commit()
    # Only one of the groups has lost rows: its last snapshot exists, but is no ancestor.
    for _ in range(2):
        with pytest.raises(TableRestoredError, match="table repair TABLE --group audit"):
            Writer(lake, "audit").look(reads(10, 20))
        writer = Writer(lake)
        position = writer.table.read(GROUP).entries[KEY].next_offset
        writer.write(reads(position, position + 10))
    assert lake.offsets() == list(range(30))


def test_table_whose_rows_were_all_replaced_stops_the_query(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    (ours,) = lake.table().snapshots()
    # Like CREATE OR REPLACE TABLE, which keeps the table and removes the current snapshot.
    table = lake.table()
    with table.transaction() as transaction:
        transaction._apply((RemoveSnapshotRefUpdate(ref_name="main"),))
    assert lake.table().current_snapshot() is None
    with pytest.raises(TableRestoredError):
        writer.look(reads(10, 20))
    lake.foreign_append()
    assert lake.table().current_snapshot().parent_snapshot_id is None
    assert lake.table().snapshot_by_id(ours.snapshot_id) is not None
    with pytest.raises(TableRestoredError):
        Writer(lake).look(reads(10, 20))


def test_query_continues_after_a_rollback_to_its_last_commit(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    (ours,) = lake.table().snapshots()
    lake.foreign_append()
    lake.set_back(ours.snapshot_id)
    writer.write(reads(10, 20))
    assert lake.offsets() == list(range(20))
    assert lake.offsets(9) == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_changed_property_stops_the_query(lake: Lake, is_removed: bool) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    transaction = lake.table().transaction()
    text = fence_of(lake.table().properties)
    if is_removed:
        transaction.remove_properties(f"{FENCE}{GROUP}")
    else:
        transaction.set_properties({f"{FENCE}{GROUP}": text.replace("[0,10]", "[0,5]")})
    transaction.commit_transaction()
    with pytest.raises(TableRestoredError, match="table repair"):
        writer.look(reads(10, 20))


def test_versions_of_property_and_snapshot() -> None:
    def fence(version: int, offset: int = 0) -> str:
        return json.dumps(
            {"version": version, "entries": {topic_id_text(TOPIC): {"0": [0, offset]}}}
        )

    assert versions(None, None) == (None, None)
    assert versions(fence(3), fence(3)) == (3, None)
    assert versions(fence(5), fence(3)) == (5, 3)
    assert versions(fence(5), None) == (5, 0)
    assert versions(None, fence(3)) == (3, 0)
    assert versions(fence(3), fence(5)) == (5, 3)
    assert versions(fence(3, 1), fence(3, 2)) == (3, 2)


def test_query_continues_after_snapshots_have_expired(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(lake)
    for start in range(0, 30, 10):
        writer.write(reads(start, start + 10))
    *old, _ = lake.table().snapshots()
    lake.table().maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    assert len(lake.table().snapshots()) == 1
    with caplog.at_level(logging.WARNING):
        Writer(lake).write(reads(30, 40))
        assert caplog.messages == []
        # If all snapshots of the group have expired, a rollback cannot be detected.
        lake.foreign_append()
        *old, _ = lake.table().snapshots()
        expiry = lake.table().maintenance.expire_snapshots()
        expiry.by_ids([each.snapshot_id for each in old]).commit()
        writer.write(reads(40, 50))
        Writer(lake).write(reads(50, 60))
    assert [each for each in caplog.messages if "snapshots" in each] == caplog.messages
    assert len(caplog.messages) == 1
    assert "a rollback of the table before these cannot be detected" in caplog.text
    assert lake.offsets() == list(range(60))
    assert lake.entries() == {KEY: Entry(0, 60)}


def test_query_continues_after_maintenance_and_other_writers(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    lake.foreign_append()
    writer.write(reads(10, 20))
    # Like a compaction: the same rows in another file.
    lake.table().overwrite(lake.rows())
    writer.write(reads(20, 30))
    with lake.table().update_schema() as update:
        update.add_column("carrier", StringType())
    writer.write(reads(30, 40))
    writer.write(reads(40, 50), schema=SCHEMA.append(pa.field("carrier", pa.string())))
    with lake.table().update_schema() as update:
        update.rename_column("carrier", "airline")
        update.update_column("partition", LongType())
    writer.write(reads(50, 60))
    assert lake.offsets() == list(range(60))
    assert lake.offsets(9) == [1000]
    airlines = lake.rows()["airline"].to_pylist()
    assert (airlines.count("AA"), airlines.count(None)) == (10, 51)


def test_query_continues_after_a_schema_change_between_comparison_and_commit(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    with lake.table().update_schema() as update:
        update.rename_column("value", "content")
    writer.commit()
    assert lake.offsets() == list(range(20))
    assert None not in lake.rows()["content"].to_pylist()


def test_manifests_are_merged_and_old_metadata_is_removed(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 1))
    lake.table().transaction().set_properties(
        {
            TableProperties.MANIFEST_MIN_MERGE_COUNT: "3",
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "2",
        }
    ).commit_transaction()
    for index in range(1, 12):
        writer.write(reads(index, index + 1))
    table = lake.table()
    assert len(table.current_snapshot().manifests(table.io)) < 4
    metadata = Path(table.location().removeprefix("file://")) / "metadata"
    assert len(list(metadata.glob("*.metadata.json"))) <= 4
    assert lake.offsets() == list(range(12))


def test_format_version_1_is_refused(lake: Lake) -> None:
    schema = Schema(NestedField(1, "day", StringType(), required=False))
    catalog = lake.catalog()
    catalog.create_namespace("lake")
    catalog.create_table("lake.old", schema, properties={"format-version": "1"})
    with pytest.raises(TableError, match="format version 1"):
        iceberg_table("lake.old", catalog).read(GROUP)


def test_table_of_the_user_begins_at_version_0_and_keeps_its_retries(lake: Lake) -> None:
    lake.create(SCHEMA)
    writer = Writer(lake)
    writer.look(reads(3, 10))
    assert writer.state.version == 0
    writer.commit()
    writer.write(reads(10, 20))
    assert lake.offsets() == list(range(3, 20))
    assert TableProperties.COMMIT_NUM_RETRIES not in lake.table().properties


def test_table_that_is_dropped_or_created_again_stops_the_query(lake: Lake) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    lake.catalog().drop_table(lake.identifier)
    with pytest.raises(TableError, match="was dropped; start"):
        writer.look(reads(10, 20))
    Writer(lake).write(reads(10, 15))
    with pytest.raises(TableError, match="dropped and created again"):
        writer.look(reads(15, 20))


def test_copy_in_another_process_has_a_catalog_of_the_same_class(lake: Lake) -> None:
    properties = {name: value for name, value in lake.properties.items() if name != "type"}
    table = iceberg_table("lake.rows", OwnCatalog("own", **properties))
    copied = pickle.loads(pickle.dumps(table))
    assert type(copied._catalog) is OwnCatalog
    assert (str(copied), copied._catalog.properties) == (str(table), table._catalog.properties)


def test_pickled_task_writer_names_its_files_by_uri(lake: Lake) -> None:
    table = lake.fenced()
    writer = pickle.loads(pickle.dumps(table.task_writer(Attempt(GROUP, 3, "try"))))
    (piece,) = writer.write([rows(reads(0, 5))], "7")
    place = f"{lake.properties['warehouse']}/lake/rows/data"
    assert piece.name == f"{place}/spark-groups-3-try-7-0.parquet"
    assert piece.rows == 5
    assert Path(piece.name.removeprefix("file://")).stat().st_size == piece.size_bytes


def test_file_that_the_driver_does_not_see_is_not_committed(lake: Lake) -> None:
    writer = Writer(lake)
    writer.look(reads(0, 10))
    (piece,) = writer.stage()
    Path(piece.name.removeprefix("file://")).unlink()
    with pytest.raises(TableError, match="share"):
        writer.table.commit(writer.attempt, [piece], writer.decision, writer.state)


def test_library_does_not_warn_of_columns_without_statistics(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Writer(lake).write(reads(0, 10))
    assert caplog.messages == []


def test_unknown_catalog_is_named(lake: Lake) -> None:
    with pytest.raises(OptionsError, match="not 'rows'"):
        iceberg_table("rows", lake.name, lake.properties)
    with pytest.raises(OptionsError, match="'nowhere' is not known"):
        iceberg_table("lake.rows", "nowhere")
    with pytest.raises(OptionsError, match="pass properties with the name"):
        iceberg_table("lake.rows", lake.catalog(), {"uri": "sqlite://"})
