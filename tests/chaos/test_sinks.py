"""Two sinks: one takes everything, the other compares next offsets in its transaction."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from chaos.account import SinkRow
from chaos.sinks import (
    AppendSink,
    GapError,
    SinkBatch,
    SqliteSink,
    appended_rows,
    sqlite_rows,
)
from spark_groups.types import OffsetRange
from tests.chaos.stories import Story

TOPIC_ID = uuid.UUID(int=1)


def batch(
    first: int, until: int, *, execution: str = "q1.1.0", topic_id: uuid.UUID = TOPIC_ID
) -> SinkBatch:
    rows = tuple(SinkRow(execution, "ants", 0, each, True) for each in range(first, until))
    return SinkBatch(execution, "g", (OffsetRange(topic_id, "ants", 0, first, until),), rows)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "rows.sqlite"
    SqliteSink.create(path)
    return path


def offsets(path: Path) -> list[int]:
    return [row.offset for row in sqlite_rows(path)]


def test_append_sink_has_what_is_written_as_often_as_it_is(tmp_path: Path) -> None:
    path, midway = tmp_path / "q1.rows", list[int]()
    sink = AppendSink(path, lambda: midway.append(len(list(appended_rows(path)))))
    sink.write(batch(0, 3))
    sink.write(batch(0, 3, execution="q1.2.0"))
    sink.close()
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


def test_sqlite_skips_what_is_there_and_writes_the_rest(database: Path) -> None:
    sink = SqliteSink(database)
    sink.write(batch(0, 5))
    sink.write(batch(0, 5))
    sink.write(batch(3, 8))
    sink.write(batch(2, 4))
    assert offsets(database) == list(range(8))


@pytest.mark.parametrize("first", [6, 100])
def test_sqlite_refuses_a_gap_and_keeps_nothing_of_the_batch(database: Path, first: int) -> None:
    sink = SqliteSink(database)
    sink.write(batch(0, 5))
    with pytest.raises(GapError, match=f"begins at {first}, and 5 is the next"):
        sink.write(batch(first, first + 2))
    assert offsets(database) == list(range(5))
    sink.write(batch(5, 6))


def test_sqlite_refuses_a_partition_that_does_not_begin_at_its_beginning(database: Path) -> None:
    with pytest.raises(GapError):
        SqliteSink(database).write(batch(1, 2))


def test_recreated_topic_begins_from_zero(database: Path) -> None:
    sink = SqliteSink(database)
    sink.write(batch(0, 2))
    sink.write(batch(0, 2, topic_id=uuid.UUID(int=2)))
    assert offsets(database) == [0, 1, 0, 1]


def test_process_that_dies_in_the_transaction_leaves_nothing(database: Path) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SqliteSink(database, dies).write(batch(0, 5))
    assert offsets(database) == []
    SqliteSink(database).write(batch(0, 5))
    assert offsets(database) == list(range(5))


def test_sqlite_that_does_not_compare_is_found_out(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteSink, "_move_on", lambda *_: 0)
    sink, story = SqliteSink(database), Story()
    for run in ("q1.1", "q1.2"):
        story.plan("q1.1", 0)
        story.write(run, 0, range(5), plan="plan 0 of q1.1", is_replay=run == "q1.2")
        sink.write(batch(0, 5, execution=f"{run}.0"))
        story.ends(run)
    story.sqlite = list(sqlite_rows(database))
    assert story.account().problems() == ["5 rows doubled in SQLite"]
