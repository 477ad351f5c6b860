"""What holds an application reaches all of its processes, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.applications import ROOT
from workshop.chaos.members.application_session import RUN_ENDED, SIGNAL_TO_SESSION
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

SESSION = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
print("blocked", flush=True)
from pathlib import Path
from workshop.chaos.members import application_session
from workshop.chaos.results.facts import RunKey
from workshop.chaos.setting import Files

application_session.END_S = 0.5
files = Files(Path(sys.argv[1]), Path(sys.argv[1]))
sys.exit(application_session.main(files, RunKey("a1", 1), sys.argv[2:]))
"""
DRIVER = """
import os, signal, subprocess, sys, time
from pathlib import Path

def ended(*_):
    sys.exit(0)

def crash(*_):
    from workshop.chaos.members.application_session import send_to_all
    send_to_all(signal.SIGKILL)
    note.write_text("it was not stopped")

signal.signal(signal.SIGTERM, ended)
signal.signal(signal.SIGWINCH, crash)
worker = subprocess.Popen(["sleep", "600"], process_group=0)
note = Path(os.environ["TMPDIR"]).parent / "pids"
note.write_text(f"{os.getpid()} {worker.pid}\\n")
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """What holds a driver, and the pids of the driver and of its worker."""
    command = (sys.executable, "-c", SESSION, str(tmp_path), sys.executable, "-c", DRIVER)
    session = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    note, pids = tmp_path / "pids", list[int]()
    try:
        wait_until(lambda: note.exists() and "\n" in note.read_text(), what="the driver")
        pids += map(int, note.read_text().split())
        yield session, pids
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)
        session.kill()
        session.wait(300)


@pytest.mark.parametrize("first", SIGNAL_TO_SESSION.values())
def test_early_signal_waits_until_the_session_can_take_it(
    tmp_path: Path, first: signal.Signals
) -> None:
    command = (sys.executable, "-c", SESSION, str(tmp_path), "sleep", "600")
    session = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        assert session.stdout is not None
        # It imports its modules only after this line.
        assert session.stdout.readline() == b"blocked\n"
        session.send_signal(first)
        session.send_signal(SIGNAL_TO_SESSION[signal.SIGKILL])
        assert session.wait(300) == -signal.SIGKILL
    finally:
        session.kill()
        session.wait(300)


def state(pid: int) -> str:
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout[:1]


def test_driver_that_has_an_order_to_kill_kills_all(
    held: tuple[subprocess.Popen[bytes], list[int]], tmp_path: Path
) -> None:
    session, pids = held
    os.kill(pids[0], signal.SIGWINCH)
    assert session.wait(300) == -signal.SIGKILL
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of all")
    assert (tmp_path / "pids").read_text().split() == [str(pid) for pid in pids]


@pytest.mark.parametrize("number", [SIGNAL_TO_SESSION[signal.SIGKILL], RUN_ENDED])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_all_are_killed(
    held: tuple[subprocess.Popen[bytes], list[int]], number: signal.Signals, is_stopped: bool
) -> None:
    session, pids = held
    if is_stopped:
        session.send_signal(SIGNAL_TO_SESSION[signal.SIGSTOP])
        wait_until(lambda: {state(pid) for pid in pids} == {"T"}, what="all to stand still")
    session.send_signal(number)
    assert session.wait(300) == -signal.SIGKILL
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of all")


def test_all_stand_still_and_continue(held: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    session, pids = held
    session.send_signal(SIGNAL_TO_SESSION[signal.SIGSTOP])
    wait_until(lambda: {state(pid) for pid in pids} == {"T"}, what="all to stand still")
    session.send_signal(signal.SIGCONT)
    wait_until(lambda: "T" not in {state(pid) for pid in pids}, what="all to continue")


def test_worker_does_not_outlive_the_driver(
    held: tuple[subprocess.Popen[bytes], list[int]],
) -> None:
    session, pids = held
    session.send_signal(signal.SIGTERM)
    assert session.wait(300) == 0
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of all")
