"""Delta tables that this writer must not write, cannot open, or whose log is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyarrow import fs

from spark_groups.errors import TableChangedError, TableError
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.delta_log import DeltaLog, committed_paths
from tests.spark.tables.batches_setup import GROUP, KEY, SCHEMA, reads
from tests.spark.tables.delta_setup import DeltaWriter, offsets

OF_READERS = {
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
    *("typeWidening", "variantType", "catalogManaged", "timestampNanos", "fromTheFuture"),
}


def change_first_commit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of the commit that made a table."""
    file = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for each in actions:
        change(each)
    file.write_text("".join(json.dumps(each) + "\n" for each in actions))


def with_protocol(path: Path, *features: str, writer: int = 7) -> None:
    """Make a table of the rows, with these features."""
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(SCHEMA))
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": writer}
    if writer == 7:
        protocol["writerFeatures"] = list(features)
    if of_readers := [each for each in features if each in OF_READERS]:
        protocol |= {"minReaderVersion": 3, "readerFeatures": of_readers}

    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol

    change_first_commit(path, change)


@pytest.mark.parametrize(
    "feature",
    [
        *("identityColumns", "rowTracking", "domainMetadata", "clustering", "allowColumnDefaults"),
        *("inCommitTimestamp", "typeWidening", "vacuumProtocolCheck", "icebergCompatV2"),
        *(
            "icebergCompatV1",
            "checkpointProtection",
            "coordinatedCommits-preview",
            "catalogManaged",
        ),
        *("timestampNanos", "fromTheFuture", "collations"),
    ],
)
def test_feature_that_the_writer_lacks_is_refused_at_once_by_name(
    tmp_path: Path, feature: str
) -> None:
    with_protocol(tmp_path, feature)
    with pytest.raises(TableError, match=f"(?i){feature}|catalog") as refused:
        DeltaWriter(tmp_path).look(reads(0, 10))
    assert not isinstance(refused.value, TableChangedError)


@pytest.mark.parametrize("writer", [6, 8])
def test_version_that_implies_more_features_is_refused(tmp_path: Path, writer: int) -> None:
    with_protocol(tmp_path, "appendOnly", writer=writer)
    with pytest.raises(TableError, match=r"identityColumns|version 8"):
        DeltaWriter(tmp_path).look(reads(0, 10))


@pytest.mark.parametrize(
    "feature",
    [
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType"),
    ],
)
def test_table_with_a_feature_that_appended_files_do_not_break_is_written(
    tmp_path: Path, feature: str
) -> None:
    with_protocol(tmp_path, feature)
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path))
    found = pa.table(query.execute("SELECT offset FROM t").read_all())
    assert sorted(found["offset"].to_pylist()) == list(range(20))


def test_variant_column_is_left_out_and_takes_no_rows(tmp_path: Path) -> None:
    with_protocol(tmp_path, "variantType")

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            more = {"name": "carrier", "type": "variant", "nullable": True, "metadata": {}}
            schema["fields"].append(more)
            action["metaData"]["schemaString"] = json.dumps(schema)

    change_first_commit(tmp_path, change)
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    with pytest.raises(TableError, match="carrier is variant"):
        writer.write(reads(10, 20), schema=SCHEMA.append(pa.field("carrier", pa.string())))


def test_commit_that_fails_without_another_one_is_no_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has one error for both."""
    writer, other = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))

    def fail(*_: object, **__: object) -> None:
        raise CommitFailedError("no space left on the device\n   0: a stack")

    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, "create_write_transaction", fail)
        with pytest.raises(TableError, match=r"no space left on the device$") as refused:
            writer.commit()
        assert not isinstance(refused.value, TableChangedError)
    writer.look(reads(10, 20))
    other.write(reads(10, 20))
    with pytest.raises(TableChangedError, match="another writer has committed"):
        writer.commit()
    assert offsets(tmp_path) == list(range(20))


def damage(file: Path, how: str) -> None:
    file.write_bytes({"empty": b"", "garbage": b"x" * 999, "cut": file.read_bytes()[:-90]}[how])


@pytest.mark.parametrize("how", ["empty", "garbage", "cut"])
def test_damaged_checkpoint_is_named_and_the_remedy_of_the_error_works(
    tmp_path: Path, how: str
) -> None:
    for index in range(12):
        DeltaWriter(tmp_path).write(reads(index, index + 1))
    log = tmp_path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    damage(checkpoint, how)
    with pytest.raises(TableError, match=f"{checkpoint.name} is damaged.*delete this one"):
        DeltaWriter(tmp_path).look(reads(12, 13))
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    # No file may count as an orphan because of it.
    with pytest.raises(TableError, match=f"{checkpoint.name} cannot be read"):
        committed_paths(files, "spark-groups-")
    # The fence is read from the commits, as long as there are all.
    read = DeltaLog(files)
    read.advance(11)
    assert read.entries == {KEY: Entry(0, 12)}
    for each in (checkpoint, log / "_last_checkpoint"):
        each.unlink()
    DeltaWriter(tmp_path).write(reads(12, 13))
    assert offsets(tmp_path) == list(range(13))


def test_older_checkpoint_is_read_where_the_last_one_is_damaged(tmp_path: Path) -> None:
    for index in range(22):
        DeltaWriter(tmp_path).write(reads(index, index + 1))
    log = tmp_path / "_delta_log"
    older, last = sorted(log.glob("*.checkpoint.parquet"))
    damage(last, "cut")
    for each in log.glob("*.json"):
        if int(each.stem) <= int(older.name[:20]):
            each.unlink()
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    read = DeltaLog(files)
    read.advance(21)
    assert read.entries == {KEY: Entry(0, 22)}
    damage(older, "garbage")
    with pytest.raises(TableError, match=f"{last.name} cannot be read"):
        DeltaLog(files).advance(21)


@pytest.mark.parametrize("text", ["", "{nonsense", '{"version": 99, "size": 1}'])
def test_damaged_hint_of_the_last_checkpoint_changes_nothing(tmp_path: Path, text: str) -> None:
    for index in range(12):
        DeltaWriter(tmp_path).write(reads(index, index + 1))
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text(text)
    try:
        deltalake.DeltaTable(tmp_path)
    except deltalake.exceptions.DeltaError:
        with pytest.raises(TableError, match="cannot be opened"):
            DeltaWriter(tmp_path).look(reads(12, 13))
    else:
        DeltaWriter(tmp_path).write(reads(12, 13))
        assert offsets(tmp_path) == list(range(13))


def test_full_vacuum_between_staging_and_commit_is_refused(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    pieces = writer.stage()
    removed = deltalake.DeltaTable(tmp_path).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )
    assert any(pieces[0].name in each for each in removed)
    with pytest.raises(TableError, match=r"lacks .*start the query again"):
        writer.table.commit(writer.attempt, pieces, writer.decision, writer.state)
    assert writer.table.read(GROUP).entries == {KEY: Entry(0, 10)}


def have_topic_as(table: Path, kind: str) -> None:
    """Give the column `topic` a type of Spark's that is only in the metadata of the column."""

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for each in schema["fields"]:
                if each["name"] == "topic":
                    each["metadata"]["__CHAR_VARCHAR_TYPE_STRING"] = kind
            action["metaData"]["schemaString"] = json.dumps(schema)

    change_first_commit(table, change)


def test_text_that_is_too_long_for_spark_is_refused(tmp_path: Path) -> None:
    """Only writers check the lengths of CHAR and VARCHAR, which are in the metadata."""
    with_protocol(tmp_path, "appendOnly")
    have_topic_as(tmp_path, "varchar(9)")
    with pytest.raises(TableError, match=r"topic has more than 9 characters .*offset 0"):
        DeltaWriter(tmp_path).write(reads(0, 10))


def test_key_that_spark_fills_with_blanks_is_refused(tmp_path: Path) -> None:
    with_protocol(tmp_path, "appendOnly")
    have_topic_as(tmp_path, "char(9)")
    delta_table(tmp_path, merge_on="value").check()
    with pytest.raises(TableError, match=r"topic of merge_on as char\(9\).* as varchar or string"):
        delta_table(tmp_path, merge_on=("value", "topic")).check()
    varchar = tmp_path / "varchar"
    with_protocol(varchar, "appendOnly")
    have_topic_as(varchar, "varchar(9)")
    delta_table(varchar, merge_on="topic").check()
