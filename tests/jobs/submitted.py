"""Jobs started with spark-submit, as tests and people start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from workshop.parts.processes import descendants, environment
from workshop.parts.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
SPARK_SUBMIT = SPARK_HOME / "bin" / "spark-submit"
START_S = 400.0
LOCAL = (
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)


def spark_environment(**changed: str) -> dict[str, str]:
    """Return an environment in which Spark is the one that PySpark brings."""
    return environment(SPARK_HOME=str(SPARK_HOME), SPARK_LOCAL_IP="127.0.0.1", **changed)


class SubmittedJob:
    """A running job in a process group of its own; its remaining processes are killed at the end.

    Args:
        directory: Where its output, checkpoint and log lie.
        name: Names the application.
        arguments: Further arguments of the job.
        submit: Arguments of spark-submit before the job.
        python: The Python of driver and workers.
        launcher: The command instead of spark-submit.
        directory_of_start: Where it is started; None is here.
        job: Which job, by the name of its file.
        has_output: Whether it writes files.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        arguments: Sequence[str],
        *,
        submit: Sequence[str] = ("--master", "local[1]"),
        python: str = sys.executable,
        launcher: Sequence[str] = (),
        directory_of_start: Path | None = None,
        job: str = "consume",
        has_output: bool = True,
    ) -> None:
        self.name = name
        self.output = directory / "output" / name
        self.checkpoint = directory / "checkpoints" / name
        self.log = directory / f"{name}.log"
        self._command = [
            *(launcher or (str(SPARK_SUBMIT), *LOCAL, *submit)),
            str(ROOT / "jobs" / f"{job}.py"),
            *("--config", str(ROOT / "conf" / f"{job}.toml"), "--name", name),
            *(("--output", str(directory / "output")) if has_output else ()),
            *("--checkpoint", str(directory / "checkpoints"), *arguments),
        ]
        self._environment = spark_environment(
            PYSPARK_PYTHON=python,
            PYSPARK_DRIVER_PYTHON=python,
        )
        self._directory_of_start = directory_of_start
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SubmittedJob:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._directory_of_start,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process_group():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(300)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def text(self) -> str:
        """Return what it logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def process_group(self) -> list[int]:
        """Return the pids of its process group that still run."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
        ).stdout
        lines = [line.split() for line in listed.splitlines()]
        group = str(self.process.pid)
        return [int(pid) for pid, pgid, stat in lines if pgid == group and stat[0] != "Z"]

    def processes(self) -> set[int]:
        """Return its pid and those of all processes that it started, Spark's workers too."""
        return {self.process.pid, *descendants(self.process.pid)}

    def batches(self, log: str) -> set[int]:
        """Return the batches in a log of the checkpoint: offsets (planned), commits (finished)."""
        directory = self.checkpoint / log
        names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
        return {int(name) for name in names if name.isdigit()}

    def await_batch(self, batch_id: int) -> None:
        """Wait until a batch is planned and not finished."""

        def in_its_middle() -> bool:
            assert self.process.poll() is None, self.text()
            return batch_id in self.batches("offsets") - self.batches("commits")

        wait_until(in_its_middle, START_S, f"the middle of batch {batch_id}")

    def await_end(self, timeout_s: float) -> tuple[int, float]:
        """Wait until it has ended.

        Returns:
            Its exit code, and the seconds that it took.
        """
        began_s = time.monotonic()
        try:
            exit_code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"not ended in {timeout_s:g} s:\n{self.text()[-5000:]}") from error
        return exit_code, time.monotonic() - began_s
