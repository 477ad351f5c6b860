"""The benchmark of changes by key: what it draws has an end, and figures become a page."""

from __future__ import annotations

from typing import Any

import pytest

from workshop.benchmarks.figures import Spread
from workshop.benchmarks.upserts import OURS, PARTS, SPARK, VECTORS, Data, cpu_s, markdown, ratio


def reading(way: str, repeat: int, cpu: float) -> dict[str, Any]:
    """Return a reading of two batches, with CPU seconds of each for the JVM."""
    return {
        "way": way,
        "repeat": repeat,
        "triggers": 2,
        "trigger_s": 3.0,
        **dict.fromkeys(PARTS, 0.0),
        "jvm_cpu_s": 2 * cpu,
        "broker_cpu_s": 7.0,
        "load_average": 0.5,
        "company_cores": 0.04,
    }


READINGS = [
    *(reading(OURS, 1, 1.0), reading(SPARK, 1, 5.0), reading(VECTORS, 1, 1.5)),
    *(reading(OURS, 2, 2.0), reading(SPARK, 2, 6.0), reading(VECTORS, 2, 3.0)),
]


def test_figures_are_of_a_batch_without_the_broker_and_ratios_of_one_repeat() -> None:
    assert cpu_s(READINGS[0]) == pytest.approx(1.0)
    assert ratio(READINGS, SPARK, cpu_s) == Spread(4.0, 3.0, 5.0)
    assert ratio(READINGS, "no way", cpu_s) is None


def test_page_has_goals_and_every_way() -> None:
    alone = {"cpu_s": 0.34, "wall_s": 0.21}
    result = {"processors": 2, "without_spark": alone, "readings": READINGS}
    page = markdown(result, "upserts.json")
    for line in (
        f"| CPU of {SPARK} to that of {OURS} | >= 2x | 4.00x (3.00 to 5.00) | met |",
        f"| CPU of {VECTORS} to that of {OURS} | >= 2x | 1.50x (1.50 to 1.50) | **missed** |",
        f"| {OURS} | 1.50 (1.50 to 1.50) | 1.50 (1.00 to 2.00) | 1.00 (1.00 to 1.00) |",
        "takes 0.34 s of CPU and 0.21 s",
        "[upserts.json](upserts.json)",
    ):
        assert line in page


def test_expected_rows_are_those_of_the_last_changes() -> None:
    data = Data.drawn(64, 160, 3)
    last = {}
    for number, partitions in enumerate(data.batches):
        assert [len(each) for each in partitions] == [20] * 8
        for each in data.arrow(number).to_pylist():
            assert each["id"] % 8 == each["partition"]
            last[each["id"]] = each
    rows = {each["id"]: each for each in data.expected().to_pylist()}
    assert len(rows) == 64 - sum(each["deleted"] for each in last.values())
    for key, row in rows.items():
        wanted = last.get(key, data.first(key))
        assert row == {name: wanted[name] for name in row}
