"""Spark applications of the demo: started with spark-submit, killed or ended by pid.

Each runs under a supervisor that kills it when the demo itself is gone, and in a process group of
its own: the supervisor, Spark's JVM, the driver's Python and the runner, which is the member.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyspark

from spark_groups.broker.jvm_process import SupervisedJvm
from spark_groups.broker.properties import STARTS_FAST

ROOT = Path(__file__).resolve().parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
STOP_TIMEOUT_S = 60.0
_LOG_LINES = 30
_CONTEXT_STARTS = "Running Spark version"
# Spark's own classes need no verification: without it a start takes 2 s less.
_JVM_FLAGS = (*STARTS_FAST, "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
_SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Code that runs for some seconds is not worth its compilation.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": " ".join(_JVM_FLAGS),
}
SUBMIT_ARGUMENTS = (
    *("--master", "local[1]", "--driver-memory", "512m"),
    *(f"--conf={key}={value}" for key, value in _SPARK_SETTINGS.items()),
)
_ROLES = {
    "org.apache.spark.deploy.SparkSubmit": "JVM",
    "python_streaming_source_runner": "runner",
    "consume.py": "driver",
    "supervisor.py": "supervisor",
}


class ApplicationError(Exception):
    """A Spark application ended by itself, or does not end."""


@dataclass(frozen=True)
class Process:
    """A process of an application.

    Args:
        pid: Its pid.
        role: What it is: JVM, driver, runner, supervisor, or the name of its program.
    """

    pid: int
    role: str

    def __str__(self) -> str:
        return f"{self.role} {self.pid}"


class Application:
    """One Spark application with one streaming query.

    Args:
        name: Names it, its output and its checkpoint.
        directory: The demo's directory.
        arguments: Arguments of `jobs/consume.py`.
    """

    def __init__(self, name: str, directory: Path, arguments: Iterable[str]) -> None:
        self.name = name
        self.output = directory / "output" / name
        self.log = directory / f"{name}.log"
        self._arguments = (
            *("--name", name, "--output", str(directory / "output")),
            *("--checkpoint", str(directory / "checkpoints"), *arguments),
        )
        self._process: SupervisedJvm | None = None
        self._pid: int | None = None

    def start(self) -> None:
        """Start it; it takes some seconds until it is a member of its group."""
        variables = (f"{name}={value}" for name, value in _environment().items())
        arguments = ("--config", str(ROOT / "conf" / "consume.toml"), *self._arguments)
        self._process = SupervisedJvm(None)
        self._process.run(["env", *variables, *self._program(), *arguments], self.log)
        self._pid = self._process.pid

    def _program(self) -> list[str]:
        """Return the command before the job's own arguments."""
        spark_submit = str(SPARK_HOME / "bin" / "spark-submit")
        return [spark_submit, *SUBMIT_ARGUMENTS, str(ROOT / "jobs" / "consume.py")]

    @property
    def is_running(self) -> bool:
        """Whether its JVM runs."""
        return self._process is not None and self._process.wait(0.0) is None

    @property
    def has_spark(self) -> bool:
        """Whether its log names a SparkContext that starts."""
        return self.log.exists() and _CONTEXT_STARTS in self.log.read_text("utf-8", "replace")

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            ApplicationError: It does not; with the last lines of its log.
        """
        if not self.is_running:
            raise self._ended()

    def kill(self) -> list[Process]:
        """Kill JVM, driver and runner at once (SIGKILL): none of them can leave the group.

        Returns:
            The killed processes.

        Raises:
            ApplicationError: It has ended by itself; with the last lines of its log.
        """
        assert self._pid is not None
        try:
            group = os.getpgid(self._pid)
            killed = group_processes(group)
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError as error:
            raise self._ended() from error
        self._close()
        return killed

    def terminate(self) -> int | None:
        """End it with SIGTERM to spark-submit, as a service manager would.

        Returns:
            Its exit code.

        Raises:
            ApplicationError: It does not end, and is killed; or it has ended by itself before.
        """
        assert self._process is not None
        assert self._pid is not None
        try:
            group = os.getpgid(self._pid)
            os.kill(self._pid, signal.SIGTERM)
        except ProcessLookupError as error:
            raise self._ended() from error
        exit_code = self._process.wait(STOP_TIMEOUT_S)
        if exit_code is None:
            self.kill()
            raise ApplicationError(
                f"{self.name} did not end within {STOP_TIMEOUT_S:g} s of SIGTERM:\n"
                + self.log_tail()
            )
        self._close()
        _await_group_end(group)
        return exit_code

    def stop(self) -> None:
        """Kill it if it is running."""
        if self.is_running:
            with contextlib.suppress(ApplicationError):
                self.kill()
        self._close()

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        # The frames of a stack trace would push its message out.
        return "\n".join([line for line in lines if not line.startswith("\tat ")][-_LOG_LINES:])

    def _ended(self) -> ApplicationError:
        return ApplicationError(f"{self.name} ended by itself:\n{self.log_tail()}")

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None


def _environment() -> dict[str, str]:
    """Return variables that select the Spark and the Python of this environment."""
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def group_processes(group: int) -> list[Process]:
    """Return the processes of a process group.

    Args:
        group: Its id.
    """
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,pgid=,args="], capture_output=True, text=True, check=True
    ).stdout
    return parse_processes(listed, group)


def parse_processes(listed: str, group: int) -> list[Process]:
    """Return the processes of one group from what `ps` listed.

    Args:
        listed: Lines of pid, process group, command line.
        group: The process group's id.
    """
    found = []
    for line in listed.splitlines():
        pid, pgid, arguments = line.split(maxsplit=2)
        if int(pgid) != group or arguments.endswith("<defunct>"):
            continue
        program = Path(arguments.split()[0]).name
        role = next((role for part, role in _ROLES.items() if part in arguments), program)
        found.append(Process(int(pid), role))
    return found


def _await_group_end(group: int, timeout_s: float = 10.0) -> None:
    """Wait until the last process of a group is gone; kill what will not go."""
    deadline_s = time.monotonic() + timeout_s
    while group_processes(group):
        if time.monotonic() > deadline_s:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            return
        time.sleep(0.1)
