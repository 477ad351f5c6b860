"""Another Delta table in the place of the one that a group has written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import deltalake
import pytest

from spark_groups.errors import TableError, TableRestoredError
from spark_groups.fence.compare import check_not_restored
from tests.spark.tables.batches_setup import GROUP, reads
from tests.spark.tables.delta_setup import DeltaWriter, offsets
from tests.spark.tables.replaced import replace_table


def check(writer: DeltaWriter) -> None:
    check_not_restored(GROUP, writer.table.read(GROUP), table=str(writer.table))


@pytest.mark.parametrize("batches", [1, 2, 12])
@pytest.mark.parametrize("is_running", [True, False])
def test_table_in_the_place_of_another_one_stops_the_query(
    tmp_path: Path, batches: int, is_running: bool
) -> None:
    """With 12 batches, the log has a checkpoint; with one, only the commit that made the table."""
    writer = DeltaWriter(tmp_path)
    for index in range(batches):
        writer.write(reads(index, index + 1))
    before = deltalake.DeltaTable(tmp_path).metadata().id
    now = replace_table(tmp_path)
    with pytest.raises(TableRestoredError, match=f"its id is {now}.*the id {before}"):
        check(writer if is_running else DeltaWriter(tmp_path))
    # Another group writes the new table, which changes nothing for this one.
    DeltaWriter(tmp_path, "audit").write(reads(0, 10))
    with pytest.raises(TableRestoredError):
        check(DeltaWriter(tmp_path))
    assert offsets(tmp_path) == list(range(10))


def test_log_without_its_first_commits_still_has_the_id(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    for index in range(12):
        writer.write(reads(index, index + 1))
    replace_table(tmp_path)
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    for each in (tmp_path / "_delta_log").glob("*.json"):
        if int(each.stem) < 12:
            each.unlink()
    with pytest.raises(TableRestoredError):
        check(DeltaWriter(tmp_path))


def test_table_that_is_copied_over_another_one_stops_the_running_query(tmp_path: Path) -> None:
    writer, other = DeltaWriter(tmp_path / "a"), DeltaWriter(tmp_path / "b")
    writer.write(reads(0, 10))
    for index in range(3):
        other.write(reads(index, index + 1))
    os.rename(tmp_path / "a", tmp_path / "old")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    with pytest.raises(TableError, match="start the query again"):
        check(writer)


def test_schema_that_changes_is_no_other_table(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    deltalake.DeltaTable(tmp_path).alter.add_columns(
        [deltalake.Field("more", deltalake.schema.PrimitiveType("string"))]
    )
    check(writer)
    writer.write(reads(10, 20))
    check(DeltaWriter(tmp_path))
    assert offsets(tmp_path) == list(range(20))
