"""The benchmark of typed rows: a table with wrong rows is found, and figures become a page."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from workshop.benchmarks.tables_report import Found
from workshop.benchmarks.typed_tables import (
    BYTES,
    PEER,
    TYPED,
    Contents,
    NowhereTarget,
    TypedTarget,
    goals,
    markdown,
)
from workshop.tests.benchmarks.test_tables_report import reading

RIGHT = [{"id": each, "amount": 10 * each, "note": "n" if each else None} for each in range(4)]


class Wanted(TypedTarget):
    """A table of which four rows are wanted."""

    wanted = Contents(4, 4, 60, 3)


@pytest.mark.parametrize(
    ("rows", "is_right"),
    [
        (RIGHT, True),
        (RIGHT[:3], False),
        ([*RIGHT, RIGHT[0]], False),
        ([*RIGHT[:3], RIGHT[2]], False),
        ([*RIGHT[:3], {**RIGHT[3], "amount": 31}], False),
        ([*RIGHT[:3], {**RIGHT[3], "note": None}], False),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_table_with_lost_doubled_or_different_rows_is_found(
    tmp_path: Path, rows: list[dict[str, Any]], *, is_right: bool, is_nested: bool
) -> None:
    kept = [{"id": each["id"], "items": [each]} for each in rows] if is_nested else rows
    deltalake.write_deltalake(tmp_path / "t", pa.Table.from_pylist(kept))
    problems = Wanted(tmp_path / "t", "").problems({0: 2, 1: 2}, SimpleNamespace())
    assert bool(problems) is not is_right


def test_rows_that_were_only_read_are_counted(tmp_path: Path) -> None:
    query = SimpleNamespace(recentProgress=[{"numInputRows": 3}, {"numInputRows": 1}])
    target = NowhereTarget(tmp_path, "")
    assert not target.problems({0: 2, 1: 2}, query)
    assert target.problems({0: 2, 1: 3}, query) == ["4 rows, not 5"]


def test_page_has_each_way_and_the_verdicts() -> None:
    readings = [
        reading(BYTES, 1.0, topic="avro"),
        reading(TYPED, 1.6, topic="avro"),
        reading(PEER, 16.0, topic="avro"),
    ]
    verdicts = {each.what: each.verdict for each in goals(Found(readings))}
    assert verdicts[f"CPU of {TYPED} to that of {BYTES}, avro"] == "**missed**"
    assert verdicts[f"CPU of {PEER} to that of {TYPED}, avro"] == "met"
    assert verdicts[f"CPU of {PEER} to that of {TYPED}, json"] == "not measured"
    result = {"measured_at": "2026-11-28", "settings": {}, "readings": readings}
    page = markdown(result, "typed_rows.json")
    assert f"| {PEER} |" in page
    assert "10.00x" in page
