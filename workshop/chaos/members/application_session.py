"""The process that holds a Spark application: a driver, its JVM, and Spark's Python processes.

It is the member's process for the run, and ends as the driver ends. Signals that stand for SIGKILL
and SIGSTOP reach all processes of the application; they are those of its session, which Spark's
processes do not leave.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from workshop.chaos.results.facts import RunKey
from workshop.chaos.setting import Files

RUN: Final = "SPARK_GROUPS_CHAOS_RUN"
"""The environment variable by which an application's processes know whose they are."""
SIGNAL_TO_SESSION: Final[Mapping[signal.Signals, signal.Signals]] = {
    signal.SIGKILL: signal.SIGUSR1,
    signal.SIGSTOP: signal.SIGUSR2,
}
"""What the run sends, for signals that would reach only this process."""
TO_SESSION: Final = frozenset(SIGNAL_TO_SESSION.values())
"""They are blocked from a process's first moment until it has handlers for them."""
RUN_ENDED: Final = signal.SIGHUP
DRIVER: Final = (sys.executable, "-m", "workshop.chaos.members.application")
LOOK_S: Final = 0.05
STOPS_S: Final = 0.5
END_S: Final = 10.0
"""How long the others may take to end after the driver."""


def send_to_all(number: signal.Signals) -> None:
    """Send a signal to all processes of this application; this one stands still first.

    Args:
        number: SIGKILL or SIGSTOP.
    """
    os.kill(os.getsid(0), SIGNAL_TO_SESSION[number])
    os.kill(os.getpid(), signal.SIGSTOP)
    # This thread runs until the kernel has stopped it, if another one has got the signal.
    time.sleep(STOPS_S)


class ApplicationSession:
    """The processes of one application.

    Args:
        files: The files of the run.
        key: Which run of which member it is.
        command: What the driver runs.
    """

    def __init__(self, files: Files, key: RunKey, command: Sequence[str]) -> None:
        root = str(Path(__file__).resolve().parents[3])
        run = json.dumps([str(files.directory), str(files.sockets), *key])
        temporary = str(files.sockets / key.member)
        self.driver = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                RUN: run,
                "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TMPDIR": temporary,
            },
        )
        self.acts: Mapping[int, Callable[[], object]] = {
            SIGNAL_TO_SESSION[signal.SIGKILL]: self.kill,
            SIGNAL_TO_SESSION[signal.SIGSTOP]: self.stop,
            RUN_ENDED: self.kill,
            signal.SIGCONT: self.resume,
            signal.SIGTERM: lambda: self.driver.send_signal(signal.SIGTERM),
        }

    def pids(self) -> set[int]:
        """Return the processes of this session, without this one."""
        command = ["ps", "-A", "-o", "pid=,stat="]
        listed = subprocess.check_output(command, text=True, timeout=END_S)
        pairs = (line.split() for line in listed.splitlines())
        running = {int(pid) for pid, state in pairs if not state.startswith("Z")}
        return {pid for pid in running if _session(pid) == os.getpid()} - {os.getpid()}

    def stop(self) -> set[int]:
        """Stop all processes, and those that they start meanwhile; return them."""
        stopped: set[int] = set()
        while new := self.pids() - stopped:
            # What `ps` listed includes itself: it is gone.
            for pid in new:
                _send(pid, signal.SIGSTOP)
            stopped |= new
        return stopped

    def resume(self) -> None:
        """Let all processes continue."""
        for pid in self.pids():
            _send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes; none of them sees another one end."""
        for pid in self.stop():
            _send(pid, signal.SIGKILL)


def main(files: Files, key: RunKey, command: Sequence[str] = DRIVER) -> int:
    """Hold an application until its driver ends, and leave nothing of it; return the exit code.

    Args:
        files: The files of the run.
        key: Which run of which member it is.
        command: What the driver runs.
    """
    received: deque[int] = deque()
    for number in (*SIGNAL_TO_SESSION.values(), RUN_ENDED, signal.SIGCONT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_SESSION)
    application = ApplicationSession(files, key, command)
    while application.driver.poll() is None:
        while received:
            application.acts[received.popleft()]()
        time.sleep(LOOK_S)
    exit_code = application.driver.returncode
    ends_by_s = time.monotonic() + END_S
    while exit_code >= 0 and time.monotonic() < ends_by_s and application.pids():
        time.sleep(LOOK_S)
    application.kill()
    if exit_code < 0:
        with contextlib.suppress(OSError):
            # SIGKILL has no handler.
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    return exit_code


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
