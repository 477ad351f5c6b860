"""The program as a whole: a short run, what it refuses, and that nothing outlives it."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.applications import ROOT
from tests.processes import descendants, is_alive
from tests.waiting import wait_until

CHAOS = (sys.executable, "-m", "chaos.run")


@pytest.mark.broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("brokers", [1, 3])
def test_short_run_is_good_and_says_so_as_json(brokers: int) -> None:
    command = (*CHAOS, "--minutes", "0.25", "--seed", "7", "--queries", "2", "--json")
    done = subprocess.run(
        (*command, "--brokers", str(brokers)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["is_good"], report["problems"]
    assert (report["seed"], report["brokers"]) == (7, brokers)
    assert bool(report["disruptions"]) == (brokers > 1)
    assert report["append"]["lost"] == report["tables"]["sqlite"]["lost"] == 0
    assert report["produced"] == report["tables"]["sqlite"]["rows"] > 0
    assert "seed 7, 0.25 minutes" in done.stderr


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
        process.wait(120)


@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_run(running: subprocess.Popen[str], number: signal.Signals) -> None:
    pids = descendants(running.pid)
    assert len(pids) >= 7, "a broker, PostgreSQL, what forks members, and the members"
    running.send_signal(number)
    exit_code = running.wait(120)
    assert exit_code == (130 if number is signal.SIGTERM else -number)
    wait_until(lambda: not any(map(is_alive, pids)), 60.0, "the end of every process")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--minutes", "0"],
        ["--queries", "9"],
        ["--seed", "x"],
        ["--sinks", "delta,oracle"],
        ["--brokers", "2"],
    ],
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    done = subprocess.run(
        (*CHAOS, *wrong), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert re.search(r"make chaos: error: ", done.stderr)
