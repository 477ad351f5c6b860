"""Processes end with the one that started them, whichever is quicker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.applications import ROOT
from tests.processes import is_alive
from tests.waiting import wait_until

RUN = """
import multiprocessing, os, sys, time
from pathlib import Path
from chaos.lifetime import die_with_parent

def child(note, is_late):
    mine = Path(note)
    if not is_late:
        die_with_parent()
    mine.with_suffix(".pid").write_text(str(os.getpid()))
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.01)
    die_with_parent()
    mine.write_text("outlived")
    time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chaos.preloaded"])
    process = context.Process(target=child, args=(sys.argv[1], sys.argv[2] == "late"))
    process.start()
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's end")
@pytest.mark.parametrize("asks", ["early", "late"])
def test_a_process_ends_with_its_run(tmp_path: Path, asks: str) -> None:
    script, note = tmp_path / "run.py", tmp_path / "note"
    script.write_text(RUN)
    command = (sys.executable, str(script), str(note), asks)
    run = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    pid_file = note.with_suffix(".pid")
    pid: int | None = None
    try:
        wait_until(pid_file.exists, 60.0, "the child")
        pid = int(wait_until(pid_file.read_text, 10.0, "its pid"))
        run.kill()
        run.wait(30)
        wait_until(lambda: not is_alive(pid), 30.0, "the end of the child")
        assert not note.exists()
    finally:
        run.kill()
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGKILL)
