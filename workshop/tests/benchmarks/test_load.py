"""`make load` in small: all parts on a real Kafka and a real Spark, and the section of the page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workshop.benchmarks import load
from workshop.benchmarks.load_page import measure_page
from workshop.benchmarks.load_report import section

PAGE = "# Load\n<!-- load: begin -->\n<!-- load: end -->\n"


def kept() -> dict[str, load.Results]:
    """Return the results beside the page."""
    found: dict[str, load.Results] = json.loads(
        load.PAGE.with_suffix(".json").read_text(encoding="utf-8")
    )
    return found


def test_the_page_has_the_results_beside_it() -> None:
    text = "\n".join(section(kept())).strip()
    page = load.PAGE.read_text(encoding="utf-8")
    assert f"<!-- load: begin -->\n{text}\n<!-- load: end -->" in page


def test_parts_without_results_are_named() -> None:
    assert "\n".join(section({})).count("Not measured.") == 3


def test_lateness_of_no_heartbeat_is_unknown() -> None:
    assert load.late_ms(iter(())) == {"count": 0, "p50": None, "p99": None, "max": None}
    found = load.late_ms(iter([0.0, 0.001, 0.005]))
    assert found == {"count": 3, "p50": 1.0, "p99": 5.0, "max": 5.0}


def test_step_ends_with_the_last_change_and_not_with_the_look_that_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began_at = time.monotonic()
    light: Any = SimpleNamespace(
        epoch=lambda: 1, changed_at=lambda: began_at + 100.0, late_s=lambda *_: iter(())
    )
    spark: Any = SimpleNamespace(changed_at=began_at + 200.0, late_s=lambda *_: iter(()))
    kafka: Any = SimpleNamespace(bootstrap_servers="")
    group = load.Group(kafka, light, spark, 4)
    monkeypatch.setattr(group, "_has_settled", lambda _: time.monotonic() > began_at + 0.3)
    group.step("they join", lambda: None)
    (step,) = group.steps
    # The step began after that moment.
    assert 100.0 < step["took_s"] <= 200.0


@pytest.mark.broker
@pytest.mark.long
def test_groups_on_one_page() -> None:
    found = measure_page(groups=7, refreshes=3)
    # A refresh reads five groups in detail.
    assert found["detailed"] == 7
    assert len(found["document_bytes"]) == 3
    assert found["look_requests"][0] > found["look_requests"][2] > 0
    assert min(found["served_memory_mb"]) > 10


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_every_part_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "load.md"
    page.write_text(PAGE, encoding="utf-8")
    sizes = {"members": "10", "steady-s": "6", "partitions": "20", "batches": "2"}
    options = [f"--{name}={value}" for name, value in sizes.items()]
    monkeypatch.setattr(
        "sys.argv", ["load", f"--page={page}", "--parts=members,partitions", *options]
    )
    load.main()
    found = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert [each["what"] for each in found["members"]["steps"]][1:3] == [
        "steady",
        "one member joins",
    ]
    assert found["partitions"]["ranges"] == 20
    assert found["partitions"]["failed"] == dict.fromkeys(found["partitions"]["failed"], 0)
    assert "10 light members and one Spark member share 24 partitions" in page.read_text()
