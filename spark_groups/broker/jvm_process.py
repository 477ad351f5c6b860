"""Two ways to run a broker's JVM: bound to its owner's lifetime, or detached."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from spark_groups.broker import supervisor
from spark_groups.errors import EmbeddedKafkaError

_ANSWER_S = 60.0
"""How long the supervisor may take for an answer, which needs no more than a fork."""
_STOPPED_POLL_S = 0.005
_NOT_RUNNING = ("T", "t", "Z", "X", "")
"""States of threads that do not run: stopped, traced, ended or gone."""


class JvmProcess(Protocol):
    """A JVM that can be started again once the last one has ended."""

    @property
    def pid(self) -> int | None:
        """The pid of the running JVM; None when none runs."""

    def run(self, command: Sequence[str], output: Path) -> None:
        """Start a JVM; standard output and error are appended to the file `output`."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end and return its exit code; None if it still runs by then."""

    def close(self) -> None:
        """Release what holds the JVM; one that is bound to its owner is killed."""


def send_signal(process: JvmProcess, number: signal.Signals) -> bool:
    """Send a signal to the JVM; return False if none runs."""
    if process.wait(0.0) is not None or process.pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
    return True


def await_stopped(process: JvmProcess, timeout_s: float) -> bool:
    """Wait until SIGSTOP has stopped every thread of a JVM; return False on a timeout.

    The signal is delivered thread by thread, so a JVM may still answer for a moment. Without /proc
    this does not wait.
    """
    tasks = Path(f"/proc/{process.pid}/task")
    deadline_s = time.monotonic() + timeout_s
    while any(_thread_state(task) not in _NOT_RUNNING for task in tasks.glob("*/stat")):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_STOPPED_POLL_S)
    return True


def _thread_state(stat: Path) -> str:
    """Return the state of a thread in one letter, as proc(5) has it; empty when it is gone."""
    try:
        return stat.read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


class SupervisedJvm:
    """A JVM that ends with the process that started it, however that process ends.

    Args:
        delete: A folder that is deleted when this is closed or the owner is gone.
    """

    def __init__(self, delete: Path | None) -> None:
        self.pid: int | None = None
        self._exit_code: int | None = None
        self._pending = b""
        # Isolated, and in a session of its own: a Ctrl-C of the terminal is the owner's to handle.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())]
            + ([str(delete)] if delete else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run(self, command: Sequence[str], output: Path) -> None:
        """Start a JVM under the supervisor."""
        assert self.pid is None
        assert self._supervisor.stdin is not None
        request = json.dumps({"run": list(command), "output": str(output)}).encode() + b"\n"
        self._exit_code = None
        try:
            self._supervisor.stdin.write(request)
            self._supervisor.stdin.flush()
        except OSError as error:
            raise EmbeddedKafkaError(f"the broker's supervisor is gone ({error})") from error
        answer = self._receive(_ANSWER_S)
        if answer is None or "error" in answer:
            why = answer["error"] if answer else "no answer"
            raise EmbeddedKafkaError(f"{command[0]} cannot be started: {why}")
        self.pid = int(answer["pid"])

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the JVM's end."""
        if self.pid is not None:
            answer = self._receive(timeout_s)
            if answer is not None:
                self.pid, self._exit_code = None, int(answer["exit"])
        return self._exit_code

    def close(self) -> None:
        """End the supervisor, which kills the JVM and deletes the folder."""
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with contextlib.suppress(OSError):
            self._supervisor.stdin.close()
        try:
            self._supervisor.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        self.pid = None

    def _receive(self, timeout_s: float) -> dict[str, str] | None:
        """Return the supervisor's next answer, or None on a timeout."""
        assert self._supervisor.stdout is not None
        descriptor = self._supervisor.stdout.fileno()
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([descriptor], [], [], remaining_s)[0]:
                return None
            received = os.read(descriptor, 65536)
            if not received:
                # The supervisor's death kills the JVM.
                return {"exit": "-9", "error": "the supervisor is gone"}
            self._pending += received
        line, self._pending = self._pending.split(b"\n", 1)
        return dict(json.loads(line))


class DetachedJvm:
    """A JVM in a session of its own that outlives the process that started it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running JVM; None when none runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def run(self, command: Sequence[str], output: Path) -> None:
        """Start a JVM."""
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the JVM's end."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Detach from the JVM, which keeps running."""
        self._process = None
