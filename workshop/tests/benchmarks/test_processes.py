"""The usage of a real process: what it opens is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workshop.benchmarks.processes import PYTHON, WORKERS, usage_by_role, usage_of
from workshop.benchmarks.timed_commands import run_timed

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


OPENS = """
import socket, sys, threading
print("before", flush=True)
sys.stdin.readline()
threading.Thread(target=threading.Event().wait, daemon=True).start()
listener = socket.create_server(("127.0.0.1", 0))
connected = socket.create_connection(listener.getsockname()), listener.accept()
print("after", flush=True)
sys.stdin.readline()
"""


def test_descriptors_threads_and_connections_are_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "before\n"
        before = usage_of(child.pid)
        child.stdin.write("open\n")
        child.stdin.flush()
        assert child.stdout.readline() == "after\n"
        after = usage_of(child.pid)
    assert before is not None
    assert after is not None
    # The socket that listens is no connection.
    assert after.descriptors == before.descriptors + 3
    assert after.connections == before.connections + 2
    assert after.threads == before.threads + 1
    assert after.memory_mb > 5


def test_children_have_roles_and_ended_processes_have_no_usage() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert {PYTHON, WORKERS} <= usage_by_role(os.getpid()).keys()
        assert usage_of(child.pid) is not None
    assert usage_of(child.pid) is None


def test_a_command_is_timed_and_must_not_fail() -> None:
    timed = run_timed(["--help"])
    assert timed.took_s > 0
    assert timed.memory_mb > 5
    assert timed.output_bytes > 100
    with pytest.raises(RuntimeError, match="ended with status 2"):
        run_timed(["describe", "--no-such-option"])
