"""The figures of `make elastic` from drawn samples, and a short run on a real Kafka and Spark."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from workshop.benchmarks import elastic
from workshop.benchmarks.elastic_report import (
    Elastic,
    Pauses,
    Sample,
    Verdict,
    figures,
    rate_between,
    recovery_s,
    section,
    unowned_s,
)
from workshop.parts.processes import descendants, environment, is_alive
from workshop.parts.waiting import wait_until

ROOT = Path(__file__).parents[3]
RUN_S = 1500.0
END_S = 180.0


def sample(at_s: float, lag_s: float | None = 1.0, **values: int) -> Sample:
    drawn = {"written": int(at_s * 100), "committed": int(at_s * 90)}
    drawn |= {"applications": 1, "members": 1, "unowned": 0, **values}
    return Sample(at_s=at_s, lag_s=lag_s, **drawn)


def looks(*lags: float | None) -> list[Sample]:
    """A look every 5 s."""
    return [sample(5.0 * number, lag_s) for number, lag_s in enumerate(lags)]


@pytest.mark.parametrize(
    ("lags", "recovered"),
    [
        ((1, 1, 12, 20, 9, 9, 9, 9), 15.0),
        ((1, 1, 12, 9, 9, 12, 9, 9, 9, 9), 25.0),
        ((1, 1, 12, None, 9, 9, 9, 9), 15.0),
        ((1, 1, 12, 20, 9, 9, 9), None),
        ((1, 1, 12, 20), None),
        ((1, 1, 9, 10), 0.0),
        ((1, 1, None, None), None),
    ],
)
def test_recovered_is_within_the_target_for_a_while(
    lags: tuple[float | None, ...], recovered: float | None
) -> None:
    found = recovery_s(looks(*lags), target_s=10.0, step_s=6.0, until_s=100.0)
    assert found == (None if recovered is None else recovered - 1.0 if recovered else 0.0)


def test_a_lag_after_the_step_does_not_count() -> None:
    samples = looks(1, 1, 12, 9, 9, 9, 9, 99)
    assert recovery_s(samples, target_s=10.0, step_s=6.0, until_s=30.0) == 9.0


def test_a_partition_is_in_a_pause_while_it_has_unread_records() -> None:
    pauses = Pauses(limit_s=6.0)
    for at_s, committed, other in ((0, 10, 5), (4, 10, 5), (8, 10, 5), (9, 12, 5), (20, 12, 5)):
        pauses.look(at_s, {0: (committed, 100), 1: (other, 5)})
    assert (pauses.longest_s, pauses.most) == (11.0, 1)
    assert (pauses.count, pauses.sum_s) == (1, 9.0)


def test_a_partition_that_had_nothing_to_read_begins_its_pause_with_a_record() -> None:
    pauses = Pauses(limit_s=6.0)
    for at_s, end in ((0.0, 5), (50.0, 5), (51.0, 6), (52.0, 6)):
        pauses.look(at_s, {0: (5, end)})
    assert pauses.longest_s == 2.0


def test_rates_and_times_without_an_owner() -> None:
    assert rate_between(looks(1, 1, 1), 0.0, 10.0) == 100.0
    assert rate_between(looks(1), 0.0, 10.0) is None
    assert unowned_s([sample(0, unowned=2), sample(3), sample(4, unowned=9)]) == 6.0


def test_rows_are_lost_or_doubled() -> None:
    verdict = Verdict(acknowledged=100, in_topic=101, rows=103, distinct=99)
    assert (verdict.lost, verdict.doubled) == (2, 4)


def test_the_table_is_counted_by_partition_and_offset(tmp_path: Path) -> None:
    written = {"partition": [0, 0, 0, 1, 1], "offset": [0, 1, 1, 0, 2]}
    deltalake.write_deltalake(tmp_path / "table", pa.table(written))
    assert elastic._rows(tmp_path / "table") == (5, 4)


GOOD = Elastic(
    command="python -m workshop.benchmarks.elastic",
    low_per_s=10.0,
    high_per_s=100.0,
    partitions=6,
    target_s=10.0,
    step_s=6.0,
    fall_s=36.0,
    samples=(*looks(1, 1, 12, 9, 9, 9, 9, 9), sample(45.0, 2.0)),
    pauses=Pauses(6.0),
    verdict=Verdict(acknowledged=100, in_topic=100, rows=100, distinct=100),
    drained_s=2.0,
    exit_codes=(143, 143),
    starts_s=(15.0, 20.0),
    loads=(1.0, 3.0),
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": Verdict(acknowledged=100, in_topic=100, rows=99, distinct=99)},
        {"verdict": Verdict(acknowledged=100, in_topic=100, rows=101, distinct=100)},
        {"exit_codes": (143, 1)},
        {"drained_s": None},
        {"samples": tuple(looks(1, 1, 12, 12, 12))},
        {"problems": ("a record was refused",)},
    ],
)
def test_a_run_is_good_only_if_nothing_is_wrong(wrong: dict[str, object]) -> None:
    assert GOOD.is_good
    assert not replace(GOOD, **wrong).is_good


def test_the_page_has_every_figure_and_the_picture_every_series(tmp_path: Path) -> None:
    text = "\n".join(section(replace(GOOD, problems=("slow",)), "One machine.", "elastic.svg"))
    assert all(f"| {name} | {value} |" in text for name, value in figures(GOOD))
    assert "| rows lost | **0** |" in text
    assert "| from the step until the lag in time is within its target | **9 s** |" in text
    assert "- slow\n" in text
    assert "![Rate, lag in time and applications over time](elastic.svg)" in text
    elastic.draw(GOOD, tmp_path / "elastic.svg")
    drawn = (tmp_path / "elastic.svg").read_text(encoding="utf-8")
    series = ("written", "committed", "lag", "started", "members")
    for name in (*series, "target", "rate rises", "rate falls"):
        assert f">{name}</text>" in drawn


def test_the_page_tells_which_pauses_count() -> None:
    page = " ".join(elastic.PAGE.read_text(encoding="utf-8").split())
    assert f"has not changed for more than {elastic.PAUSE_S:g} s (three triggers)" in page


@pytest.mark.parametrize(
    "wrong",
    [
        ("--rate", "1"),
        ("--seconds", "0"),
        ("--target-lag", "0"),
        ("--max-applications", "13"),
        ("--max-applications", "2"),
    ],
)
def test_a_run_that_cannot_be_made_is_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as refused:
        elastic.main([*wrong])
    assert refused.value.code == 2


def started(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as written:
        return subprocess.Popen(
            [sys.executable, "-m", "workshop.benchmarks.elastic", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            env=environment(),
        )


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(RUN_S + END_S)
def test_an_application_is_added_and_removed_and_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits = ("--records-per-application", "700", "--target-lag", "12", "--max-applications", "2")
    load = ("--rate", "1000", "--seconds", "60", "--partitions", "4")
    process = started(log, *load, *limits)
    try:
        code = process.wait(RUN_S)
    finally:
        process.terminate()
        process.wait(END_S)
    shown = log.read_text(encoding="utf-8")
    assert code == 0, shown
    assert "applications: 1, then 2, then 1\n" in shown
    assert "rows lost: **0**\nrows doubled: **0**\n" in shown


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
def test_sigterm_leaves_nothing_running(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = started(log, "--rate", "1000", "--partitions", "4")
    try:
        wait_until(lambda: "elastic-1 joined" in log.read_text(), END_S, "the first application")
        found = descendants(process.pid)
        assert len(found) > 4
        process.terminate()
        assert process.wait(END_S) == 130, log.read_text(encoding="utf-8")
        wait_until(lambda: not any(map(is_alive, found)), END_S, "the end of every process")
    finally:
        process.kill()
        process.wait(END_S)
