"""The program as a whole: a short run, what it refuses, and that nothing outlives it."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from rich.console import Console

from demo.applications import ROOT
from workshop.chaos import run
from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.results import runs
from workshop.chaos.results.account import Account
from workshop.chaos.results.page import NAME
from workshop.chaos.results.report import Circumstances
from workshop.chaos.results.trial import KINDS
from workshop.chaos.setting import Files
from workshop.chaos.systems.evolving import VERSIONS
from workshop.parts.processes import descendants, is_alive
from workshop.parts.waiting import wait_until
from workshop.tests.chaos.results.page_setup import eventful, kept
from workshop.tests.chaos.results.report_setup import circumstances, replayed

CHAOS = (sys.executable, "-m", "workshop.chaos.run")


@pytest.mark.broker
def test_short_run_is_good_also_as_json(tmp_path: Path) -> None:
    more = ("--brokers", "3", "--faults", "network")
    command = (*CHAOS, "--minutes", "0.25", "--seed", "7", "--queries", "2", *more)
    done = subprocess.run(
        (*command, "--json", "--page", str(tmp_path / "page.html")),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["is_good"], report["problems"]
    assert (report["seed"], report["brokers"]) == (7, 3)
    assert report["disruptions"]
    assert any(each["where"] for each in report["troubles"])
    assert report["append"]["lost"] == report["tables"]["sqlite"]["lost"] == 0
    assert report["produced"] == report["tables"]["sqlite"]["rows"] > 0
    assert "seed 7, 0.25 minutes" in done.stderr
    assert report["command"] == " ".join(("python", *command[1:]))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert report["command"] in page
    assert re.search(r"(ants|bees)-\d+: q\d\.\d reads it", page)


def test_run_is_noted_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Mapping[str, object]] = []

    def fails(_: Console, chosen: argparse.Namespace) -> int:
        assert chosen.seed == 7 or "--seed" in chosen.command
        raise run.ChaosError("no start")

    monkeypatch.setattr(run, "_run", fails)
    monkeypatch.setattr(run, "prepare_to_fork", list)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(runs, "note", noted.append)
    command = ["--minutes", "1", "--sinks", "delta,sqlite", "--json", "--record"]
    assert run.main([*command, "--keep", "there", "--seed", "7"]) == 2
    assert run.main([*command, "--page=there"]) == 2
    first, second = noted
    assert (
        first["command"] == "python -m workshop.chaos.run --minutes 1 --sinks delta,sqlite --seed 7"
    )
    assert (first["exit_status"], first["sinks"], first["seed"]) == (2, "delta+sqlite", 7)
    assert str(second["command"]).endswith(f" --sinks delta,sqlite --seed {second['seed']}")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_kinds_of_members_share_a_group(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = (
        *CHAOS,
        "--minutes",
        "1.5",
        "--seed",
        "7",
        "--queries",
        "2",
        "--sinks",
        "sqlite,delta",
    )
    more = ("--plain-consumers", "2", "--classic", "1", "--applications", "2", "--keep", str(kept))
    done = subprocess.run((*command, *more), cwd=ROOT, timeout=1100, check=False)
    assert done.returncode == 0
    # Whether all of them get as far as a batch depends on the machine.
    began = {path.stem for path in (kept / "journals").iterdir() if "begins" in path.read_text()}
    assert began == {"q1", "q2", "c1", "c2", "classic1", "a1", "a2"}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_is_good_whose_writers_change_their_schema_in_tables_of_all_forms() -> None:
    tables = ("--tables", "partitioned,upserts,routes", "--rows-per-second", "125")
    command = (*CHAOS, "--minutes", "1", "--seed", "7", "--values", "avro", *tables, "--json")
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["schemas"] == VERSIONS
    assert report["produced"] == report["tables"]["delta"]["rows"] > 0
    assert report["tables"]["routes"] == report["tables"]["delta"]
    assert report["keys"] > 0


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's end")
def test_no_application_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = (*CHAOS, "--minutes", "5", "--seed", "7", "--queries", "1", "--applications", "1")
    run = subprocess.Popen((*command, "--keep", str(kept)), cwd=ROOT)
    journal = kept / "journals" / "a1.jsonl"
    try:
        wait_until(lambda: journal.exists() and "logged" in journal.read_text(), 300.0, "a batch")
        pids = descendants(run.pid)
        run.kill()
        run.wait(300)
        wait_until(lambda: not any(map(is_alive, pids)), what="the end of every process")
    finally:
        run.kill()
        run.wait(300)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_run_with_further_faults_on_three_brokers_is_good() -> None:
    command = (*CHAOS, "--minutes", "1", "--seed", "7", "--brokers", "3", "--json")
    faults = [each for each in FaultClass if each is not FaultClass.CLUSTER]
    done = subprocess.run(
        (*command, "--faults", ",".join(fault.value for fault in faults)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["is_good"], report["problems"]
    assert report["append"]["deleted"] > 0
    kinds = {kind for kind, found in report["faults"].items() if found["done"]}
    assert all(kinds & KINDS[fault] for fault in faults)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_run_with_another_cluster_at_the_same_addresses_is_good() -> None:
    command = (*CHAOS, "--minutes", "2", "--seed", "7", "--json", "--faults", "cluster")
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_failed_run_is_noted_and_has_a_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Played:
        """A run that hung."""

        def __init__(
            self, _: Console, __: object, files: Files, *___: object, **____: object
        ) -> None:
            kept(eventful(), files.directory)

        def run(self) -> tuple[Circumstances, Account]:
            return circumstances("it hung"), replayed()

    noted: list[Mapping[str, object]] = []
    monkeypatch.setattr(run, "Chaos", Played)
    nothing = contextlib.nullcontext((None, None))
    monkeypatch.setattr(run, "running_kafka", lambda *_, **__: nothing)
    monkeypatch.setattr(run, "prepare_to_fork", list)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(runs, "note", noted.append)
    own, page = tmp_path / "kept", tmp_path / "page.html"
    command = ["--minutes", "2", "--seed", "7", "--record", "--page", str(page)]
    assert run.main([*command, "--keep", str(own)]) == 1
    assert [(each["exit_status"], each["records"]) for each in noted] == [(1, 5)]
    assert "NOT GOOD" in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == (own / NAME).read_text(encoding="utf-8")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose faults have begun."""
    command = (*CHAOS, "--minutes", "5", "--seed", "7", "--queries", "2")
    command = (*command, "--sinks", "postgres", "--keep")
    process = subprocess.Popen(
        (*command, str(tmp_path / "kept")), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        shown = list(itertools.takewhile(lambda line: "faults begin" not in line, process.stdout))
        assert process.poll() is None, "".join(shown)
        yield process
    finally:
        # It ends every process that it has started.
        process.terminate()
        process.wait(300)


@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_run(running: subprocess.Popen[str], number: signal.Signals) -> None:
    pids = descendants(running.pid)
    assert len(pids) >= 7, "a broker, PostgreSQL, what forks members, and the members"
    running.send_signal(number)
    exit_code = running.wait(300)
    assert exit_code == (130 if number is signal.SIGTERM else -number)
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of every process")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--minutes", "0"],
        ["--queries", "9"],
        ["--seed", "x"],
        ["--sinks", "delta,oracle"],
        ["--brokers", "2"],
        ["--brokers", "3", "--faults", "cluster"],
        ["--applications", "7"],
        ["--record", "--plant", "no-compare"],
        ["--values", "avro", "--queries", "1"],
        ["--values", "json"],
        ["--sinks", "delta", "--tables", "upserts"],
        ["--tables", "routes"],
        ["--tables", "partitioned"],
        ["--values", "avro", "--tables", "views"],
    ],
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    done = subprocess.run(
        (*CHAOS, *wrong), cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 2
    assert re.search(r"make chaos: error: ", done.stderr)
