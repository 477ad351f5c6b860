"""A standalone Spark cluster on this host: one master, one worker, from PySpark's own jars."""

from __future__ import annotations

import subprocess
from pathlib import Path

from spark_groups.broker.embedded import HOST, free_ports
from tests.jobs.submitted import SPARK_HOME, spark_environment
from workshop.parts.waiting import wait_until

SPARK_CLASS = SPARK_HOME / "bin" / "spark-class"
START_S = 400.0


class StandaloneCluster:
    """Runs while the block runs.

    Args:
        directory: Where the logs and the worker's directory lie.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (self._port,) = free_ports(1)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    @property
    def worker_pid(self) -> int:
        """The pid of the worker, whose children the executors are."""
        return self._processes[-1].pid

    def __enter__(self) -> StandaloneCluster:
        try:
            at = ("--host", HOST, "--webui-port", "0")
            self._start("master.Master", *at, "--port", str(self._port))
            self._await("master.Master", "New state: ALIVE")
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / "work"))
            self._start("worker.Worker", *at, *work, self.url)
            self._await("worker.Worker", "Successfully registered with master")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def executor_log(self) -> str:
        """Return what the executors wrote."""
        logs = sorted((self._directory / "work").glob("app-*/*/std*"))
        return "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def _start(self, name: str, *arguments: str) -> None:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
                env=spark_environment(SPARK_DAEMON_MEMORY="256m"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _await(self, name: str, text: str) -> None:
        def is_said() -> bool:
            said = self._log(name).read_text(encoding="utf-8", errors="replace")
            assert self._processes[-1].poll() is None, said
            return text in said

        wait_until(is_said, START_S, f"{name}: {text}")

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _stop(self) -> None:
        # The worker first: it ends the executors.
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(300)
