"""Where a table begins the partitions of a group, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_groups.errors import TableGapError
from spark_groups.fence.beginnings import LOOK_AGAIN_S, Batch, UnsavedEntries
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange, PlanTopic
from tests.spark.tables.batches_setup import GROUP, KEY, TOPIC, reads, rows
from tests.spark.tables.delta_setup import DeltaWriter, entries, offsets
from tests.spark.tables.write_setup import PARTITIONS, CutLogs, Staging
from workshop.parts.table_write import write_batch


def at(offset: int, partition: int = 0) -> dict[FenceKey, OffsetAndMetadata]:
    """Return a query's committed offset of a partition."""
    return {
        FenceKey(GROUP, TOPIC, partition): OffsetAndMetadata(offset, commit_metadata(PARTITIONS))
    }


READ_TOPIC = PlanTopic(TOPIC, "departures", PARTITIONS)


def next_batch(number: int, *ranges: OffsetRange, before: OffsetRange | None = None) -> Batch:
    """Return a batch of one run of a query that reads three partitions."""
    done = () if before is None else (before,)
    return Batch(GROUP, number, ranges, topics=(READ_TOPIC,), before=done, run_id="run")


@pytest.mark.parametrize("is_there", [False, True])
def test_table_has_entries_of_all_partitions_where_the_group_stood_at_the_first_comparison(
    tmp_path: Path, is_there: bool
) -> None:
    writer, unsaved = DeltaWriter(tmp_path), UnsavedEntries()
    logs = CutLogs(begun=at(0) | at(7, 1))
    if is_there:
        DeltaWriter(tmp_path, "audit").write(reads(0, 5))

    def write(batch: Batch) -> None:
        write_batch(writer.table, batch, Staging(writer), Notices(), logs, unsaved)

    write(next_batch(0))
    # A plain consumer reads partition 1 before the table's first batch of it.
    logs.begun = at(0) | at(20, 1)
    write(next_batch(1, reads(0, 10)))
    found = {key: each for key, each in entries(tmp_path).items() if key.group_id == GROUP}
    assert found == {KEY: Entry(0, 10), FenceKey(GROUP, TOPIC, 1): Entry(7, 7)}
    with pytest.raises(TableGapError, match="13 offsets would be missing"):
        write(next_batch(2, reads(20, 30, 1)))
    assert offsets(tmp_path, 1) == []


def test_partition_that_another_client_has_begun_is_a_gap_and_its_own_start_is_none(
    tmp_path: Path,
) -> None:
    writer, logs = DeltaWriter(tmp_path), CutLogs()
    writer.write(reads(0, 10))
    logs.begun = {FenceKey(GROUP, TOPIC, 1): OffsetAndMetadata(20, "")}
    batch = next_batch(1, reads(20, 30, 1))
    with pytest.raises(TableGapError, match="20 offsets would be missing"):
        write_batch(writer.table, batch, Staging(writer), Notices(), logs)
    # A group may stand where another tool has put it, before it has a table.
    fresh = DeltaWriter(tmp_path / "fresh")
    write_batch(fresh.table, batch, Staging(fresh), Notices(), logs)
    assert offsets(tmp_path / "fresh", 1) == list(range(20, 30))


def test_batch_before_that_is_not_in_the_table_is_a_gap_although_kafka_has_it(
    tmp_path: Path,
) -> None:
    writer, logs = DeltaWriter(tmp_path), CutLogs(begun=at(10))
    batch = next_batch(1, reads(10, 20), before=reads(0, 10))
    with pytest.raises(TableGapError, match="only start the query with a new checkpoint") as raised:
        write_batch(writer.table, batch, Staging(writer), Notices(), logs)
    assert "--topic departures:0 --to-offset 0 --execute" in str(raised.value)
    # With a new checkpoint there is no batch before.
    batch = next_batch(0, reads(10, 20))
    write_batch(writer.table, batch, Staging(writer), Notices(), logs)
    assert entries(tmp_path) == {KEY: Entry(10, 20)}


def test_records_that_were_deleted_before_the_first_batch_are_no_gap(tmp_path: Path) -> None:
    writer, logs = DeltaWriter(tmp_path), CutLogs(begun=at(0), start=15)
    write_batch(writer.table, next_batch(0, reads(0, 50)), Staging(writer), Notices(), logs)
    assert entries(tmp_path) == {KEY: Entry(15, 50)}
    logs.begun = at(0, 1)
    batch = next_batch(1, reads(20, 50, 1), before=reads(0, 20, 1))
    with pytest.raises(TableGapError, match="20 offsets would be missing"):
        write_batch(writer.table, batch, Staging(writer), Notices(), logs)


def test_batch_without_rows_is_no_gap_after_a_restart(tmp_path: Path) -> None:
    def without_rows(writer: DeltaWriter) -> Any:
        def stage(ranges: tuple[OffsetRange, ...], attempt: Attempt) -> Sequence[Piece]:
            return [*writer.table.task_writer(attempt).write([rows(reads(0, 0))], "0")]

        return stage

    writer, logs = DeltaWriter(tmp_path), CutLogs(begun=at(0))
    write_batch(writer.table, next_batch(0, reads(0, 10)), without_rows(writer), Notices(), logs)
    again = DeltaWriter(tmp_path)
    batch = next_batch(1, reads(10, 20), before=reads(0, 10))
    write_batch(again.table, batch, Staging(again), Notices(), logs)
    assert offsets(tmp_path) == list(range(10, 20))


def test_partitions_that_no_member_has_begun_are_looked_for_again_but_not_for_each_batch(
    tmp_path: Path,
) -> None:
    writer, unsaved, logs = DeltaWriter(tmp_path), UnsavedEntries(), CutLogs(begun=at(0))
    now_s = [1.0]

    def write(number: int) -> None:
        batch = next_batch(number, reads(10 * number, 10 * number + 10))
        write_batch(
            writer.table, batch, Staging(writer), Notices(), logs, unsaved, now=lambda: now_s[0]
        )

    write(0)
    logs.begun |= at(3, 1)
    write(1)
    assert (logs.asked, len(entries(tmp_path))) == (1, 1)
    now_s[0] += LOOK_AGAIN_S
    write(2)
    assert (logs.asked, len(entries(tmp_path))) == (2, 2)
    now_s[0] += LOOK_AGAIN_S
    logs.begun |= at(4, 2)
    write(3)
    now_s[0] += LOOK_AGAIN_S
    write(4)
    assert (logs.asked, len(entries(tmp_path))) == (3, 3)
