"""CPU seconds include those of ended processes, in a real control group."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workshop.benchmarks.cpu import CpuAccount, CpuAccountError, MachineTime

ORPHANS = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.stdin.readline()
for _ in range(2):
    if os.fork() == 0:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("ended", flush=True)
sys.stdin.readline()
"""


def test_processes_without_a_waiting_parent_are_counted() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHANS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        try:
            account = CpuAccount(process.pid)
        except CpuAccountError as error:
            pytest.skip(str(error))
        before, machine = account.used(), MachineTime.now()
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        used = account.used() - before
        # Clocks of processes and of groups differ by some ticks.
        assert used.children > 0.9
        assert MachineTime.now().company_cores(machine, 0.0) * 1e3 > 0
        account.close()
    finally:
        process.kill()
        process.wait()


def test_company_is_what_others_used() -> None:
    earlier, later = MachineTime(10.0, 100.0), MachineTime(12.0, 103.0)
    assert later.company_cores(earlier, 2.0) == 0.5
