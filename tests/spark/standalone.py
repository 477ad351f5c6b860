"""A standalone cluster of Spark on this host: a master, and two workers with one core each.

It is no `local-cluster[...]`: that puts all its executors on one host, where Spark starts no second
attempt of a slow task, and writes their logs into the environment that Spark is installed in.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from workshop.parts.applications import REPOSITORY, kill_everything
from workshop.parts.processes import descendants, environment
from workshop.parts.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 400.0
EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """A master and a worker on each of two loopback addresses, which end with the context.

    Args:
        directory: Holds their logs, and those of executors.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            at = ("--host", HOSTS[0], "--port", "0", "--webui-port", "0")
            log = self._start("master", HOSTS[0], "master.Master", *at)
            (self.master,) = self._await(log, r"Starting Spark master at (spark://\S+)")
            for host in HOSTS:
                at = ("--host", host, "--webui-port", "0", "--work-dir", str(self.directory / host))
                size = ("--cores", "1", "--memory", "1g")
                log = self._start(host, host, "worker.Worker", *at, *size, self.master)
                self._await(log, r"Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what this cluster started: workers first, which start executors again."""
        for process in reversed(self._started):
            if process.poll() is None:
                kill_everything(process)

    def executors(self) -> list[int]:
        """Return the pids of the executors that run."""
        pids = [pid for each in self._started[1:] for pid in descendants(each.pid)]
        return [pid for pid in pids if EXECUTOR in command_line(pid)]

    def executor_logs(self) -> str:
        """Return what the executors of the last application have logged."""
        paths = sorted(self.directory.glob("*/app-*/*/stderr"))
        last = max((each.parts[-3] for each in paths), default="")
        return "\n".join(each.read_text() for each in paths if each.parts[-3] == last)

    def _start(self, name: str, host: str, main_class: str, *arguments: str) -> Path:
        home, log = Path(_find_spark_home()), self.directory / f"{name}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{main_class}", *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                env=environment(
                    SPARK_HOME=str(home),
                    SPARK_LOCAL_IP=host,
                    SPARK_DAEMON_MEMORY="128m",
                    PYSPARK_PYTHON=sys.executable,
                    PYTHONPATH=str(REPOSITORY),
                ),
                start_new_session=True,
            )
        self._started.append(process)
        return log

    def _await(self, log: Path, line: str) -> tuple[str, ...]:
        process = self._started[-1]
        wait_until(
            lambda: re.search(line, log.read_text()) or process.poll() is not None, START_S, line
        )
        found = re.search(line, log.read_text())
        assert found is not None, log.read_text()[-3000:]
        return found.groups()


def command_line(pid: int) -> str:
    """Return the words of a process; empty if it ended."""
    asked = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def executor_conf(**others: str) -> dict[str, str]:
    """Return Spark's configuration for an application on the cluster; `__` stands for a dot."""
    return {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        **{name.replace("__", "."): value for name, value in others.items()},
    }
