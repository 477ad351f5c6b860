"""Faults of the machine: disks that become full, clocks that jump; each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.applications import ROOT
from spark_groups.errors import SparkGroupsError
from workshop.chaos.faults.clocks import PACKAGE, ClockError, set_clock, start_fork_server
from workshop.chaos.faults.disks import is_disk_full
from workshop.chaos.faults.machine import TABLES, Disks, MachineFaults
from workshop.chaos.faults.schedule import FaultClass, MachineFault, MachineFaultKind
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Trouble
from workshop.chaos.setting import Files

REFUSED = "refused"
FULL_DISK = """
import sys
from contextlib import suppress
from pathlib import Path
from workshop.chaos.faults.disks import DiskError, is_disk_full
from workshop.chaos.faults.machine import Disks
from workshop.chaos.faults.schedule import FaultClass

directory = Path(sys.argv[1])
try:
    with Disks([FaultClass.DISK]) as disks:
        disks.add("d", directory / "d")
        (directory / "d" / "first").write_text("first")
        disks["d"].fill(8192)
        (directory / "d" / "second").write_text("2" * 8192)
        try:
            (directory / "d" / "third").write_text("3")
        except OSError as error:
            print(is_disk_full(error))
        disks["d"].make_room()
        (directory / "d" / "third").write_text("3" * 100_000)
except DiskError as error:
    print("refused", error)
"""
JUMPS = """
import multiprocessing, sys, threading, time
from pathlib import Path
from workshop.chaos.faults import clocks

path = Path(sys.argv[1])
EXPECTED_S = {"+0.000": 0, "+7200.000": 7200, "-3600.500": -3600.5}

def show(path, back):
    from workshop.chaos.faults import clocks

    clocks.follow(path)
    for text, expected_s in EXPECTED_S.items():
        clocks.set_clock(path, expected_s)
        assert path.read_text().strip() == text
        while abs(time.time() - clocks.wall_s() - expected_s) > 0.1:
            time.sleep(0.1)
        began_s = time.monotonic()
        threading.Event().wait(0.2)
        assert 0.2 <= time.monotonic() - began_s < 100
    back.send("jumped")

if __name__ == "__main__":
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["workshop.chaos.faults.clocks"])
    try:
        clocks.start_fork_server()
    except clocks.ClockError as error:
        sys.exit(f"refused {error}")
    clocks.set_clock(path, 0.0)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(target=show, args=(path, there))
    process.start()
    print(here.recv() if here.poll(600) else "nothing")
    process.join()
    assert abs(time.time() - clocks.wall_s()) < 60
"""


def run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, path, tmp_path / "d"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_disk_is_full_for_a_while_and_its_files_stay(tmp_path: Path) -> None:
    done = run(FULL_DISK, tmp_path)
    if done.stdout.startswith(REFUSED):
        pytest.skip(done.stdout)
    assert done.stdout == "True\n", done.stdout + done.stderr
    kept = {each.name: each.stat().st_size for each in (tmp_path / "d" / "d").iterdir()}
    assert kept == {"first": 5, "second": 8192, "third": 100_000}
    assert not os.path.ismount(tmp_path / "d" / "d")


def test_clock_of_one_process_jumps_and_its_waits_do_not(tmp_path: Path) -> None:
    done = run(JUMPS, tmp_path)
    if REFUSED in done.stderr:
        pytest.skip(done.stderr)
    assert (done.stdout, done.returncode) == ("jumped\n", 0), done.stderr


def test_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workshop.chaos.faults.clocks.PLACES", ("/nowhere/*.so",))
    with pytest.raises(ClockError, match=f"apt-get install {PACKAGE}"):
        start_fork_server()
    assert "LD_PRELOAD" not in os.environ


def test_full_disk_is_recognized_behind_other_errors() -> None:
    behind = SparkGroupsError("the table cannot be written")
    assert not is_disk_full(behind)
    behind.__cause__ = OSError(28, "No space left on device")
    assert is_disk_full(behind)
    assert is_disk_full(RuntimeError("database or disk is full"))
    assert not is_disk_full(OSError(5, "Input/output error"))


class Disk:
    def __init__(self, name: str, calls: list[str]) -> None:
        self._name = name
        self._calls = calls

    def fill(self, spare_bytes: int) -> None:
        self._calls.append(f"fill {self._name} but {spare_bytes}")

    def make_room(self) -> None:
        self._calls.append(f"make room in {self._name}")


class StandIns(Disks):
    """Disks that note each call."""

    def __init__(self) -> None:
        super().__init__([FaultClass.DISK])
        self.calls: list[str] = []

    def __getitem__(self, name: str) -> Any:
        return Disk(name, self.calls)

    def add(self, name: str, directory: Path) -> None:
        self.calls.append(f"add {name}, {directory.name}")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path / "run", tmp_path)
    files.make()
    for name in ("q1", "c1"):
        files.member(name).mkdir()
    return files


def fault(kind: MachineFaultKind, takes_s: float = 1000.0) -> MachineFault:
    return MachineFault(0.0, kind, "q1", takes_s, spare_bytes=4096, ahead_s=-7200.0)


def machine(disks: StandIns, files: Files, *running: str) -> MachineFaults:
    return MachineFaults(disks, files, ("q1", "c1"), ("q1",), is_running=running.__contains__)


@pytest.mark.parametrize(
    ("kind", "name", "members"),
    [
        (MachineFaultKind.CHECKPOINT_FULL, "q1", ("q1",)),
        (MachineFaultKind.TABLES_FULL, TABLES, ("q1", "c1")),
    ],
)
def test_disk_has_room_again_when_it_is_time(
    files: Files, kind: MachineFaultKind, name: str, members: tuple[str, ...]
) -> None:
    disks = StandIns()
    faults = machine(disks, files, "q1")
    faults.carry_out(fault(kind))
    faults.tick()
    assert disks.calls == ["add q1, checkpoint", f"fill {name} but 4096"]
    faults.carry_out(fault(kind))
    assert faults.outcomes[kind, Outcome.SKIPPED] == 1, "it is full already"
    faults.settle()
    assert disks.calls[-1] == f"make room in {name}"
    assert faults.outcomes[kind, Outcome.DONE] == 1
    (found,) = faults.troubles
    assert found == Trouble(FaultClass.DISK, kind.value, members, found.from_s, found.until_s)
    faults.carry_out(fault(kind, takes_s=0.0))
    faults.tick()
    assert len(faults.troubles) == 2


def test_clock_jumps_and_jumps_back(files: Files) -> None:
    faults = machine(StandIns(), files, "q1")
    assert {files.clock(name).read_text() for name in ("q1", "c1")} == {"+0.000\n"}
    faults.carry_out(fault(MachineFaultKind.JUMP))
    assert files.clock("q1").read_text() == "-7200.000\n"
    faults.settle()
    assert files.clock("q1").read_text() == "+0.000\n"


def test_member_without_a_process_is_left_alone(files: Files) -> None:
    faults = machine(StandIns(), files)
    faults.carry_out(fault(MachineFaultKind.JUMP))
    assert faults.outcomes == {(MachineFaultKind.JUMP, Outcome.SKIPPED): 1}
    assert files.clock("q1").read_text() == "+0.000\n"


def test_run_without_faults_of_disks_mounts_nothing(tmp_path: Path) -> None:
    with Disks([FaultClass.CLOCK]) as disks:
        disks.add("d", tmp_path / "d")
        assert disks.of_brokers(tmp_path, (1, 2, 3)) is None
    assert list(tmp_path.iterdir()) == []
    set_clock(tmp_path / "clock", 0.25)
    assert (tmp_path / "clock").read_text() == "+0.250\n"
