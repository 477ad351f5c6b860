"""Processes end with the one that started them, whichever is quicker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.applications import ROOT
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

RUN = """
import multiprocessing, os, sys, time
from pathlib import Path
from workshop.parts.lifetime import be_parent, die_with_parent

def child(note, is_late):
    mine = Path(note)
    if not is_late:
        die_with_parent()
    parent = os.getppid()
    mine.with_suffix(".pids").write_text(f"{os.getpid()} {parent}\\n")
    while os.getppid() == parent:
        time.sleep(0.01)
    die_with_parent()
    mine.write_text("outlived")
    time.sleep(600)

if __name__ == "__main__":
    be_parent()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workshop.chaos.members.preloaded"])
    process = context.Process(target=child, args=(sys.argv[1], sys.argv[2] == "late"))
    process.start()
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's end")
@pytest.mark.parametrize("killed", ["run", "what forks for it"])
@pytest.mark.parametrize("asks", ["early", "late"])
def test_a_process_ends_with_its_run(tmp_path: Path, asks: str, killed: str) -> None:
    script, note = tmp_path / "run.py", tmp_path / "note"
    script.write_text(RUN)
    command = (sys.executable, str(script), str(note), asks)
    run = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    pids_file = note.with_suffix(".pids")
    pids: list[int] = []
    try:
        wait_until(lambda: pids_file.exists() and "\n" in pids_file.read_text(), what="the child")
        pids = [int(pid) for pid in pids_file.read_text().split()]
        os.kill(run.pid if killed == "run" else pids[1], signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, pids)), what="the end of what it has started")
        assert not note.exists()
    finally:
        run.kill()
        run.wait(300)
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)
