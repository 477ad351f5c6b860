"""Spark applications as processes of their own, by spark-submit of jobs/consume.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.types import BatchPlan
from workshop.parts.processes import descendants, environment, is_alive
from workshop.parts.waiting import wait_until

CONF = {"spark.ui.enabled": "false"}
REPOSITORY = Path(__file__).parents[2]


def start_module(
    module: str, given: Mapping[str, Any], log: Path, **variables: str
) -> subprocess.Popen[bytes]:
    """Start a module of the tests as a Spark application.

    Args:
        given: Its only argument, as JSON.
        log: What it prints is appended to this file.
        variables: Variables of its environment.
    """
    with log.open("ab") as written:
        return subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(given)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            env=environment(PYSPARK_PYTHON=sys.executable, **variables),
            start_new_session=True,
        )


def stop_everything(process: subprocess.Popen[bytes]) -> list[int]:
    """SIGSTOP all processes of an application, and return their pids."""
    return [pid for pid in (process.pid, *descendants(process.pid)) if stop(pid)]


def kill_everything(process: subprocess.Popen[bytes]) -> None:
    """Stop all processes of an application first, so that none sees another one die."""
    pids = stop_everything(process)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait(30)
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of the application")


@dataclass(frozen=True)
class Batch:
    """A micro-batch by what Spark's checkpoint says of it.

    Args:
        batch_id: Spark's number for it.
        plan: What it read.
        planned_at: When it was written to the offset log, in seconds of the wall clock.
        finished_at: When it was written to the commit log; None if it was not.
    """

    batch_id: int
    plan: BatchPlan
    planned_at: float
    finished_at: float | None


class Application:
    """One Spark application in a group, writing Parquet.

    Args:
        directory: Holds its output, checkpoint and log.
        name: Its name.
        settings: Keys of the job's configuration.
        conf: Spark's own configuration.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        settings: Mapping[str, str],
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.output = directory / "output" / name
        self.checkpoint = directory / "checkpoints" / name
        self.log = directory / f"{name}.log"
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[1]", "--driver-memory", "512m"),
            *(f"--conf={key}={value}" for key, value in {**CONF, **conf}.items()),
            str(REPOSITORY / "jobs" / "consume.py"),
            *("--name", name),
            *("--output", str(directory / "output")),
            *("--checkpoint", str(directory / "checkpoints")),
        ]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(PYSPARK_PYTHON=sys.executable),
                start_new_session=True,
            )

    def terminate(self, timeout_s: float = 400.0) -> int:
        """Send SIGTERM to spark-submit and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL everything at once: JVM, driver, runner and workers."""
        kill_everything(self.process)

    def pause(self) -> list[int]:
        """SIGSTOP everything at once and return the pids, for `resume`."""
        return stop_everything(self.process)

    def resume(self, pids: list[int]) -> None:
        """Resume the paused process."""
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill its remaining processes."""
        if self.process.poll() is None:
            self.kill()

    def batches(self) -> list[Batch]:
        """Return its batches so far, in order."""
        return sorted(self._batches(), key=lambda each: each.batch_id)

    def _batches(self) -> Iterator[Batch]:
        for path in (self.checkpoint / "offsets").glob("[0-9]*"):
            plan = parse_plan_text(path.read_text().splitlines()[-1])
            if plan is None:
                continue
            commit = self.checkpoint / "commits" / path.name
            finished_at = commit.stat().st_mtime if commit.exists() else None
            yield Batch(int(path.name), plan, path.stat().st_mtime, finished_at)


def stop(pid: int) -> bool:
    """SIGSTOP a process; False if it ended since it was seen: Spark's workers come and go."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return True
