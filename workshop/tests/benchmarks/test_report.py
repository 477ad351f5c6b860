"""The page of the benchmarks: from small results, from parts of them, and from none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from workshop.benchmarks import report
from workshop.benchmarks.figures import RATE_SOURCE, SMALL, THIS_SOURCE
from workshop.benchmarks.readers import FAST, JVM_BEST, READERS
from workshop.tests.benchmarks.figures_setup import READINGS

RESULTS = {
    "throughput": {
        "processors": 2,
        "kafka": "4.3.1",
        "jvm_options": "",
        "readers": {
            name: [reader.source, dict(reader.options)] for name, reader in READERS.items()
        },
        "readings": READINGS,
    },
    "best_peer": {
        "measured_at": "2026-11-28",
        "options": ["kafka.max.poll.records"],
        "readings": [
            {
                "topic": SMALL,
                "tasks": tasks,
                "options": ["500"],
                "repeat": repeat,
                "rows_per_s": tasks * 1e5,
                "cpu_s": 0.8,
            }
            for tasks in (2, 4)
            for repeat in (0, 1)
        ],
    },
    "triggers": {
        "readings": [
            {
                "source": source,
                "partitions": count,
                "repeat": 0,
                "trigger_ms": took_ms,
                "jvm_cpu_ms": 80.0,
                "python_cpu_ms": 20.0,
            }
            for source, count, took_ms in (
                (RATE_SOURCE, 1, 100),
                (THIS_SOURCE, 1, 130),
                (RATE_SOURCE, 1000, 100),
            )
        ]
    },
    "latency": {
        "readings": [
            {"source": RATE_SOURCE, "repeat": 0, "latency_ms": [], "trigger_ms": [60.0]},
            {
                "source": FAST,
                "repeat": 0,
                "latency_ms": [40.0, 60.0, 310.0],
                "trigger_ms": [90.0],
            },
        ]
    },
    "cold_start": {
        "imports": [
            {"process": "worker", "own_ms": 56.7, "own_modules": 40, "heavy": ["numba", "re2"]}
        ],
        "readings": [
            {"source": "JVM source", "repeat": 0, "from_process_s": 9.5},
            {"source": FAST, "repeat": 0, "from_process_s": 10.25},
        ],
    },
}
PICTURES = {"throughput_ratios.svg", "throughput_cpu.svg", "trigger_times.svg"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write the page from some results, and return it."""

    def run(*names: str) -> str:
        for name in names:
            (tmp_path / f"{name}.json").write_text(json.dumps(RESULTS[name]), encoding="utf-8")
        page = tmp_path / "docs" / "page.md"
        page.parent.mkdir()
        arguments = ["report", "--results", str(tmp_path), "--page", str(page)]
        monkeypatch.setattr(sys, "argv", arguments)
        report.main()
        return page.read_text(encoding="utf-8")

    return run


def test_a_page_has_goals_medians_and_every_repeat(write, tmp_path: Path) -> None:
    page = write(*RESULTS)
    for line in (
        f"| CPU of all but the broker, {FAST}, {SMALL}, to {JVM_BEST} | <= 0.7x"
        " | 0.71x (0.67 to 1.00) | **missed** |",
        "| trigger above the rate source, partitions: 1 | <= 40 ms | 30 ms (30 to 30) | met |",
        f"| record to row, {FAST}, p50 | <= 150 ms | 60 ms (60 to 60) | met |",
        f"| record to row, {FAST}, p99 | <= 300 ms | 310 ms (310 to 310) | **missed** |",
        f"| cold start to the first row, {FAST}, above the JVM source | <= 2 s"
        " | 0.75 s (0.75 to 0.75) | met |",
        f"| {SMALL} | {FAST} | 2.00 (1.00 to 4.00) | 1.50 (1.00 to 2.00) | 0.71 (0.67 to 1.00)"
        " | 0.50 + 0.25 + 0.12 | 4.00 1.00 2.00 |",
        f"| {SMALL} | 4 | 500 | 0.40 (0.40 to 0.40) | 0.80 (0.80 to 0.80) |",
        "| 1 | kafka-group | 130 (130 to 130) | 80 + 20 | 130 |",
        "| `worker` | 57 | 40 | numba, re2 |",
        "| 1,000 | kafka-group | - | - | no result |",
        "- `throughput`: processors 2; kafka 4.3.1",
    ):
        assert line in page.splitlines()
    assert page.count(report.NOT_MEASURED) == 2, "neither two tasks nor the run without checks"
    assert "{" not in page
    raw = json.loads((tmp_path / "docs" / "page.json").read_text(encoding="utf-8"))
    assert raw == json.loads(json.dumps(RESULTS))
    assert "(page.json)" in page
    assert {each.name for each in (tmp_path / "docs").glob("*.svg")} == PICTURES
    assert all(f"({picture})" in page for picture in PICTURES)


def test_pictures_are_svg_on_no_ground_of_their_own_and_the_same_each_time(
    write, tmp_path: Path
) -> None:
    write(*RESULTS)
    drawn = {each.name: each.read_bytes() for each in (tmp_path / "docs").glob("*.svg")}
    assert FAST.encode() in drawn["throughput_ratios.svg"], "text stays text"
    for content in drawn.values():
        grounds = ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}g")
        (ground,) = [each for each in grounds if each.get("id") == "patch_1"]
        assert "fill: none" in ground[0].get("style", "")
    report.draw(RESULTS, tmp_path / "again")
    assert {each.name: each.read_bytes() for each in (tmp_path / "again").iterdir()} == drawn


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_names_the_unmeasured_parts(name: str, write) -> None:
    page = write(name)
    assert page.count(report.NOT_MEASURED) == 6
    assert "not measured" in page


def test_a_page_of_nothing_has_all_goals_and_no_pictures(write, tmp_path: Path) -> None:
    page = write()
    assert page.count("| not measured |") == 14
    assert not list((tmp_path / "docs").glob("*.svg"))
