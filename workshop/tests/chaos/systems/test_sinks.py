"""The sinks: a file that takes everything, and real tables of the package."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from spark_groups.cli.table_names import TableKind
from spark_groups.errors import TableGapError
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.types import OffsetRange
from workshop.chaos.plants import Plant, planted
from workshop.chaos.results.account import SinkRow
from workshop.chaos.systems.record import record_value
from workshop.chaos.systems.sinks import AppendSink, Row, SinkBatch, TableSink, appended_rows
from workshop.chaos.systems.tables import (
    USE_POSTGRES,
    Places,
    command_name,
    delete_rows,
    open_table,
    reach_in_commit,
    table_rows,
)
from workshop.tests.chaos.stories import TABLE, Story

TOPIC_ID = uuid.UUID(int=1)
GROUP = "g"


class DiedError(BaseException):
    """In place of the end of a process."""


def dies() -> None:
    raise DiedError


def batch(
    first: int, until: int, *, execution: str = "q1.1.0", topic_id: uuid.UUID = TOPIC_ID
) -> SinkBatch:
    rows = tuple(
        Row("ants", 0, each, record_value("ants", 0, each)) for each in range(first, until)
    )
    return SinkBatch(execution, GROUP, 0, (OffsetRange(topic_id, "ants", 0, first, until),), rows)


def test_append_sink_has_a_row_as_often_as_it_is_written(tmp_path: Path) -> None:
    path, midway = tmp_path / "q1.rows", list[int]()
    sink = AppendSink(path, lambda: midway.append(len(list(appended_rows(path)))))
    sink.write(batch(0, 3))
    sink.write(batch(0, 3, execution="q1.2.0"))
    rows = list(appended_rows(path))
    assert [row.offset for row in rows] == [0, 1, 2, 0, 1, 2]
    assert rows[0] == SinkRow("q1.1.0", "ants", 0, 0, True)
    assert midway == [2, 5], "it is written in two parts"


@pytest.mark.parametrize("cut", range(1, 18))
def test_row_that_was_cut_off_is_none_and_spoils_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "q1.rows"
    sink = AppendSink(path)
    sink.write(batch(0, 2))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    sink.write(batch(5, 6))
    found = [row.offset for row in appended_rows(path)]
    # Without its end of line a row is whole.
    assert found == ([0, 1, 5] if cut == 1 else [0, 5])


@pytest.fixture(params=TableKind)
def kind(request: pytest.FixtureRequest) -> TableKind:
    return TableKind(request.param)


@pytest.fixture
def places(request: pytest.FixtureRequest, kind: TableKind, tmp_path: Path) -> Places:
    """Where a table of the kind may be made, which is not there yet."""
    if kind not in USE_POSTGRES:
        return Places(tmp_path)
    server: str = request.getfixturevalue("postgres")
    name = f"chaos_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return Places(tmp_path, psycopg.conninfo.make_conninfo(server, dbname=name))


def offsets(kind: TableKind, places: Places) -> list[int]:
    rows = list(table_rows(kind, places))
    assert all(row.is_right for row in rows)
    return sorted(row.offset for row in rows)


def entry(kind: TableKind, places: Places) -> Entry | None:
    key = FenceKey(GROUP, TOPIC_ID, 0)
    return open_table(kind, places).read(GROUP).entries.get(key)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_table_skips_the_rows_it_has_and_writes_the_rest(
    kind: TableKind, places: Places, is_partitioned: bool
) -> None:
    places = replace(places, is_partitioned=is_partitioned)
    sink = TableSink(open_table(kind, places))
    for first, until in ((0, 5), (0, 5), (3, 8), (2, 4)):
        sink.write(batch(first, until))
    assert offsets(kind, places) == list(range(8))
    assert entry(kind, places) == Entry(0, 8)


def test_table_refuses_a_gap_and_keeps_nothing_of_the_batch(
    kind: TableKind, places: Places
) -> None:
    sink = TableSink(open_table(kind, places))
    sink.write(batch(0, 5))
    with pytest.raises(TableGapError, match="the batch begins at 6"):
        sink.write(batch(6, 8))
    assert offsets(kind, places) == list(range(5))


def test_row_of_another_place_is_wrong(kind: TableKind, places: Places) -> None:
    good = batch(0, 2)
    moved = tuple(row._replace(offset=1 - row.offset) for row in good.rows)
    written = SinkBatch(good.execution, GROUP, 0, good.ranges, moved)
    TableSink(open_table(kind, places)).write(written)
    assert [row.is_right for row in table_rows(kind, places)] == [False, False]


def test_process_that_dies_before_the_commit_leaves_no_row(kind: TableKind, places: Places) -> None:
    for points in ((dies,), (lambda: None, dies)):
        with pytest.raises(DiedError):
            TableSink(open_table(kind, places), *points).write(batch(0, 5))
    assert entry(kind, places) is None
    TableSink(open_table(kind, places)).write(batch(0, 5))
    assert offsets(kind, places) == list(range(5))


def test_process_that_dies_in_the_commit_leaves_all_or_nothing(
    kind: TableKind, places: Places
) -> None:
    TableSink(open_table(kind, places)).write(batch(0, 5))
    table = open_table(kind, places)
    reach_in_commit(table, kind, dies)
    with pytest.raises(DiedError):
        TableSink(table).write(batch(5, 9))
    there = 9 if kind is TableKind.DELTA else 5
    assert (offsets(kind, places), entry(kind, places)) == (list(range(there)), Entry(0, there))
    TableSink(open_table(kind, places)).write(batch(5, 9))
    assert offsets(kind, places) == list(range(9))


def account_of(kind: TableKind, places: Places, *executions: str) -> list[str]:
    """Return the problems of a run whose executions all wrote the offsets 0 to 4."""
    story = Story()
    for number, run in enumerate(executions):
        story.plan(run, 0)
        story.write(run, 0, range(5), plan="plan 0 of q1.1", is_replay=number > 0)
        story.ends(run)
    found = entry(kind, places)
    assert found is not None
    story.table = list(table_rows(kind, places))
    story.entry = (found.start_offset, found.next_offset)
    return story.account().problems()


@pytest.mark.parametrize(
    ("plant", "problems"),
    [(None, []), (Plant.NO_COMPARE, [f"5 rows doubled in {TABLE}"]), (Plant.COMPARE_BEFORE, [])],
)
def test_batch_that_comes_again_is_doubled_where_nothing_is_compared(
    kind: TableKind, places: Places, plant: Plant | None, problems: list[str]
) -> None:
    for run in ("q1.1", "q1.2"):
        sink = TableSink(planted(open_table(kind, places), plant))
        sink.write(batch(0, 5, execution=f"{run}.0"))
    assert account_of(kind, places, "q1.1", "q1.2") == problems


@pytest.mark.parametrize("plant", [None, Plant.COMPARE_BEFORE])
def test_zombie_doubles_its_batch_where_the_commit_does_not_compare(
    kind: TableKind, places: Places, plant: Plant | None
) -> None:
    owner = TableSink(open_table(kind, places))
    zombie = TableSink(
        planted(open_table(kind, places), plant),
        before_commit=lambda: owner.write(batch(0, 5, execution="q1.2.0")),
    )
    zombie.write(batch(0, 5))
    problems = account_of(kind, places, "q1.1", "q1.2")
    assert problems == ([] if plant is None else [f"5 rows doubled in {TABLE}"])


def test_rows_that_are_deleted_by_hand_are_those_of_one_partition(
    kind: TableKind, places: Places
) -> None:
    if command_name(kind, places) is None:
        pytest.skip("its catalog has no name in commands")
    TableSink(open_table(kind, places)).write(batch(0, 8))
    delete_rows(kind, places, ("bees", 0), 2)
    delete_rows(kind, places, ("ants", 1), 2)
    assert offsets(kind, places) == list(range(8))
    delete_rows(kind, places, ("ants", 0), 5)
    assert offsets(kind, places) == list(range(5))
    assert entry(kind, places) == Entry(0, 8), "rows are deleted without it"
