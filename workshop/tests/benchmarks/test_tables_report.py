"""The benchmark of tables: rows that are not there once are found, and figures become a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from workshop.benchmarks.figures import SMALL, Spread
from workshop.benchmarks.table_ways import (
    ARROW,
    COPY,
    DELTA_BY,
    ICEBERG,
    ICEBERG_BY,
    POSTGRES,
    SPARK,
    SPARK_TUNED,
    WAYS,
    PartitionCount,
    partition_counts,
    problems_of,
)
from workshop.benchmarks.tables import Case, cases
from workshop.benchmarks.tables_report import (
    LARGE_RECORDS,
    PARTS,
    Found,
    cpu_s,
    goals,
    per_trigger,
    rate,
    write_page,
)
from workshop.benchmarks.throughput import TopicKind

BIG, LITTLE = 2_000_000, 200_000


def reading(
    way: str,
    cpu: float,
    *,
    topic: str = SMALL,
    repeat: int = 1,
    batch_rows: int = BIG,
    trigger_s: float = 1.0,
) -> dict[str, Any]:
    """Return a reading of two batches, with CPU seconds of each for the JVM."""
    return {
        "topic": topic,
        "way": way,
        "batch_rows": batch_rows,
        "repeat": repeat,
        "counted_rows": 2 * batch_rows,
        "triggers": 2,
        "trigger_s": 2 * trigger_s,
        **dict.fromkeys(PARTS, 0.0),
        "jvm_cpu_s": 2 * cpu,
        "broker_cpu_s": 7.0,
        "load_average": 0.5,
        "company_cores": 0.04,
    }


READINGS = [
    reading(SPARK, 6.0, trigger_s=4.0),
    reading(SPARK_TUNED, 3.0, trigger_s=4.0),
    reading(ARROW, 1.0),
    reading(ICEBERG, 1.2),
    reading(POSTGRES, 2.0, trigger_s=2.0),
    reading(COPY, 2.0, trigger_s=1.0),
    reading(SPARK, 3.0, batch_rows=LITTLE),
    reading(ARROW, 0.37, batch_rows=LITTLE, trigger_s=0.4),
    reading(SPARK, 9.0, topic=LARGE_RECORDS),
    reading(ARROW, 2.0, topic=LARGE_RECORDS),
]


def rows(partition: int, offsets: Sequence[int]) -> pa.RecordBatch:
    columns = [pa.array([partition] * len(offsets), pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "offset"])


@pytest.mark.parametrize(
    ("written", "problems"),
    [
        ([(0, [0, 1, 2]), (1, [1, 0])], 0),
        ([(0, [0, 1]), (1, [0, 1]), (0, [2])], 0),
        ([(0, [0, 1, 1, 2]), (1, [0, 1])], 1),
        ([(0, [0, 1, 1]), (1, [0, 1])], 1),
        ([(0, [0, 2, 3]), (1, [0, 1])], 1),
        ([(0, [0, 1]), (1, [0])], 2),
        ([(0, [0, 1, 2])], 1),
        ([(0, [0, 1, 2]), (1, [0, 1]), (2, [0])], 1),
        ([], 2),
    ],
    ids=["whole", "in_parts", "doubled", "replaced", "moved", "lost", "empty", "strange", "none"],
)
def test_every_record_has_to_be_in_the_table_once(
    written: Sequence[tuple[int, Sequence[int]]], problems: int
) -> None:
    found = partition_counts(rows(*each) for each in written)
    assert len(problems_of(found, {0: 3, 1: 2, 7: 0})) == problems


def test_a_problem_shows_the_rows_and_those_wanted() -> None:
    (problem,) = problems_of({3: PartitionCount(4, 3, 0, 2)}, {3: 3})
    assert problem == f"partition 3: {PartitionCount(4, 3, 0, 2)}, not {PartitionCount(3, 3, 0, 2)}"


def test_two_sizes_of_batches_give_what_a_trigger_takes() -> None:
    assert per_trigger(200_000, 0.4, 2_000_000, 2.2) == pytest.approx(0.2)
    of_arrow = Found(READINGS).of_a_trigger(SMALL, ARROW, *PARTS)
    assert of_arrow == Spread(*[pytest.approx(0.3)] * 3)
    assert Found(READINGS).of_a_trigger(SMALL, ICEBERG, *PARTS) is None
    assert Found(READINGS).of_a_trigger(LARGE_RECORDS, ARROW, *PARTS) is None


def test_figures_are_of_a_million_rows_without_the_broker() -> None:
    assert rate(READINGS[0]) == pytest.approx(0.5)
    assert cpu_s(READINGS[0]) == pytest.approx(3.0)
    assert cpu_s(READINGS[0], "driver_cpu_s") == 0


def test_each_goal_is_of_its_own_readings() -> None:
    partitioned = [reading(DELTA_BY, 1.2), reading(ICEBERG_BY, 1.6)]
    verdicts = [each.verdict for each in goals(Found(READINGS + partitioned))]
    missed = "**missed**"
    of_others, of_partitioned = verdicts[:-2], verdicts[-2:]
    assert of_others == ["met", missed, missed, "met", missed, "met", "met", "met", "met", missed]
    assert of_partitioned == ["met", missed]
    assert {each.verdict for each in goals(Found([]))} == {"not measured"}


def test_the_page_has_goals_and_every_case(tmp_path: Path) -> None:
    results = tmp_path / "build" / "tables.json"
    results.parent.mkdir()
    results.write_text(json.dumps({"processors": 2, "readings": READINGS}), encoding="utf-8")
    write_page(results, tmp_path / "tables.md")
    page = (tmp_path / "tables.md").read_text(encoding="utf-8")
    for line in (
        f"| CPU of {SPARK} to that of {ARROW}, {SMALL} | >= 5x | 6.00x (6.00 to 6.00) | met |",
        "## 100 B, none, batches of 200,000 rows",
        "- processors 2",
        "- load average before a query 0.5 at most; processors that others used meanwhile 0.04 at"
        " most",
        f"| {ARROW} | 0.30 (0.30 to 0.30) | 0.33 (0.33 to 0.33) | 0.40 (0.40 to 0.40)"
        " | 0.37 (0.37 to 0.37) |",
    ):
        assert line in page.splitlines()
    assert all(f"| {name} | {each.what} |" in page for name, each in WAYS.items())
    pictures = {each.name for each in tmp_path.glob("*.svg")}
    assert pictures == {"tables_ratios.svg", "tables_cpu.svg"}
    assert all(f"({picture})" in page for picture in pictures)
    assert json.loads((tmp_path / "tables.json").read_text(encoding="utf-8"))["processors"] == 2


def test_a_page_of_no_readings_has_goals_and_no_pictures(tmp_path: Path) -> None:
    results = tmp_path / "none.json"
    results.write_text(json.dumps({"readings": []}), encoding="utf-8")
    write_page(results, tmp_path / "tables.md")
    assert "| not measured |" in (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert not list(tmp_path.glob("*.svg"))


def test_cases_are_of_the_topics_asked_for() -> None:
    first, small, large = cases(8_000_000, BIG, LITTLE, "100,1000")
    assert (first.rows, first.batch_rows) == (8_000_000, BIG)
    assert set(first.ways) == set(WAYS)
    assert small.batch_rows == LITTLE
    assert COPY not in small.ways
    assert large == Case(TopicKind(1000, "none"), 2_000_000, 500_000, large.ways)
    assert len([*cases(8_000_000, BIG, 0, "100,1000")]) == 2
