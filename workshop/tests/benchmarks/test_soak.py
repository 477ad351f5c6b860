"""A drawn run of the soak: its page, its picture and its exit status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from workshop.benchmarks import soak
from workshop.benchmarks.noted import write_section
from workshop.benchmarks.trends import Kind, Sample

PAGE = "before\n<!-- soak: begin -->\nold\n<!-- soak: end -->\nafter\n"


def drawn(value: Callable[[float], float], minutes: float = 10.0) -> list[Sample]:
    """Return a sample every three seconds."""
    return [(3.0 * number, value(3.0 * number)) for number in range(int(minutes * 20))]


STEADY = soak.Soak(
    minutes=10.0,
    series={
        Kind.MEMORY: {"driver, JVM": drawn(lambda at_s: 700 + at_s % 7)},
        Kind.DESCRIPTORS: {"driver, JVM": drawn(lambda _: 350)},
    },
    counts={**dict.fromkeys(soak.COUNTS, 0), "batches_finished": 600},
    loads=[1.0, 3.0],
    status=0,
    last_batch_s=597.0,
)


def leaking() -> soak.Soak:
    """One descriptor is left open in each batch of 2 s."""
    opened = {"driver, JVM": drawn(lambda at_s: 350 + at_s // 2)}
    return replace(STEADY, series={**STEADY.series, Kind.DESCRIPTORS: opened})


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (STEADY, 0),
        (leaking(), 1),
        (replace(leaking(), status=137), 2),
        (replace(STEADY, last_batch_s=500.0), 2),
        (replace(STEADY, series={Kind.MEMORY: {"driver, JVM": drawn(lambda _: 9, 8.0)}}), 2),
        (replace(STEADY, series={Kind.THREADS: {"driver, JVM": drawn(lambda _: 9, 0.1)}}), 2),
    ],
)
def test_the_status_says_what_the_run_showed(found: soak.Soak, status: int) -> None:
    assert soak.status_of(found) == status


def test_the_page_names_the_series_that_grows(tmp_path: Path) -> None:
    page, picture = tmp_path / "load.md", tmp_path / "soak.svg"
    page.write_text(PAGE, encoding="utf-8")
    soak.draw(leaking(), picture)
    write_section(page, "soak", soak.section(leaking(), picture.name))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- soak: begin -->\n")
    assert text.endswith("\n<!-- soak: end -->\nafter\n")
    assert "old" not in text
    assert "Load average 2.0, at most 3.0." in text
    (grows,) = (line for line in text.splitlines() if "grows" in line)
    assert grows.startswith("| driver, JVM | descriptors |")
    assert "driver, JVM" in picture.read_text(encoding="utf-8")
    # Writing again changes nothing.
    write_section(page, "soak", soak.section(leaking(), picture.name))
    assert page.read_text(encoding="utf-8") == text
