"""The supervisor's child ends with the owner, however the owner ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

OWNER = """
import os, signal, sys, time
from pathlib import Path
from spark_groups.broker.jvm_process import SupervisedJvm

# Shells let what they start in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = Path(sys.argv[1])
owned = SupervisedJvm(folder)
owned.run([sys.executable, "-c", "import time; time.sleep(600)"], folder / "out")
forked = os.fork() if sys.argv[2] == "forks" else 0
if sys.argv[2] == "forks" and not forked:
    time.sleep(600)
print(owned.pid, forked, flush=True)
while True:
    # Python handles a signal that comes before a sleep begins only after that sleep.
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("forks", ["forks", "does not fork"])
def test_the_child_and_the_folder_go_with_the_owner(
    tmp_path: Path, number: signal.Signals, forks: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), forks], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    child, forked = (int(pid) for pid in owner.stdout.readline().split())
    assert is_alive(child)
    try:
        owner.send_signal(number)
        owner.wait(300)
        wait_until(lambda: not is_alive(child), what="the end of the child")
        wait_until(lambda: not folder.exists(), what="the end of the folder")
    finally:
        if forked:
            assert is_alive(forked)
            subprocess.run(["kill", "-KILL", str(forked)], check=True)
        owner.stdout.close()
