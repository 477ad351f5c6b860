"""A Spark Connect server as a process of its own, and clients of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from workshop.parts.applications import REPOSITORY, kill_everything, start_module
from workshop.parts.processes import descendants, environment
from workshop.parts.waiting import wait_until

START_S: Final = 120
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass
class Server:
    """A server that tests kill and start again, with its log, event log and UI.

    Args:
        directory: Where these are.
        port: Its port, and the port of its UI is the next one.
        process: Its JVM.
        left: What killed JVMs have left behind.
    """

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    left: list[int] = field(default_factory=list)

    @property
    def remote(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def ui(self) -> str:
        return f"http://127.0.0.1:{self.port + 1}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> None:
        """Start it, and wait until it takes clients."""
        events = self.directory / "events"
        events.mkdir(exist_ok=True)
        conf = {
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.port": str(self.port + 1),
        }
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[2]", "--driver-memory", "1g", "--name", "connect"),
            *(f"--conf={name}={value}" for name, value in conf.items()),
            *("--class", _CLASS, "spark-internal"),
        ]
        with self.log.open("ab") as written:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                env=environment(PYSPARK_PYTHON=sys.executable),
                start_new_session=True,
            )
        wait_until(self._is_ready, START_S, "a Spark Connect server")

    def kill(self) -> None:
        """Kill its JVM alone: what it has started sees it go, and may outlive it."""
        assert self.process is not None
        self.left += descendants(self.process.pid)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> None:
        """End it with everything that it has started."""
        if self.process is not None and self.process.poll() is None:
            kill_everything(self.process)
        for pid in self.left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def free_ports() -> int:
    """Return a free port after which another one is free."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            with suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 1))
                return port


@dataclass
class Client:
    """A client whose query writes to a Delta table; it may be killed, and started again.

    Args:
        server: Its server.
        name: Its name, and that of its checkpoint.
        options: Those of its stream.
        process: Its process.
    """

    server: Server
    name: str
    options: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    _before: int = 0

    @property
    def log(self) -> Path:
        return self.server.directory / f"{self.name}.log"

    def start(self) -> None:
        """Start it."""
        place = self.server.directory
        given: dict[str, Any] = {
            "remote": self.server.remote,
            "options": dict(self.options),
            "table": str(place / "table"),
            "checkpoint": str(place / f"{self.name}-checkpoint"),
        }
        self._before = self._starts()
        self.process = start_module("tests.spark.connect_client", given, self.log)

    def await_query(self) -> None:
        """Wait until its query runs."""
        wait_until(lambda: self._starts() > self._before, START_S, f"the query of {self.name}")

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)

    def _starts(self) -> int:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return text.count("the query runs")


def start(server: Server, clients: Iterable[Client]) -> None:
    """Start a server and then its clients, and wait until their queries run."""
    server.start()
    for each in clients:
        each.start()
    for each in clients:
        each.await_query()


@contextmanager
def connected(directory: Path, options: Mapping[str, str], *names: str) -> Iterator[Any]:
    """Yield a running server, and a running client for each name; they end afterwards."""
    server = Server(directory, free_ports())
    clients = [Client(server, name, options) for name in names]
    try:
        start(server, clients)
        yield server, clients
    finally:
        for each in clients:
            each.kill()
        server.close()


def shown(directory: Path) -> dict[str, str]:
    """Return every file below a directory, but Parquet, as text."""
    return {
        str(path.relative_to(directory)): path.read_bytes().decode("latin-1")
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".parquet"
    }
