"""A Spark Connect server as a process of its own, and clients of it."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.spark.tables.places import Place
from workshop.chaos.plants import Plant
from workshop.parts.applications import REPOSITORY, kill_everything, start_module
from workshop.parts.processes import descendants, environment, is_alive
from workshop.parts.waiting import wait_until

START_S: Final = 120
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass
class Server:
    """A server that tests kill and start again, with its log, event log and UI.

    Args:
        directory: Where these are.
        port: Its port, and the port of its UI is the next one.
        conf: Spark's configuration, in addition to what every server has.
        clients: Its clients.
        process: Its JVM.
        left: What killed JVMs have left behind.
    """

    directory: Path
    port: int
    conf: Mapping[str, str] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
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
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.port": str(self.port + 1),
            **self.conf,
        }
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--driver-memory", "1g", "--name", "connect"),
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
        # Others may get the pids of those that have ended.
        self.left = [*filter(is_alive, self.left), *descendants(self.process.pid)]
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> None:
        """End it with its clients, and everything that it has started."""
        for each in self.clients:
            each.kill()
        if self.process is not None and self.process.poll() is None:
            kill_everything(self.process)
        for pid in filter(is_alive, self.left):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def client(
        self,
        name: str,
        options: Mapping[str, str],
        places: Mapping[str, Place],
        plant: Plant | None = None,
    ) -> Client:
        """Return a client of it, which is not started."""
        self.clients.append(Client(self, name, options, places, plant))
        return self.clients[-1]

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
    """A client with a query for each of its tables; it may be killed, and started again.

    Args:
        server: Its server.
        name: Its name, with which those of its checkpoints begin.
        options: Those of its streams.
        places: The table of each query, by the query's group.
        plant: A bug of the tables; None: there is none.
        process: Its process.
    """

    server: Server
    name: str
    options: Mapping[str, str]
    places: Mapping[str, Place]
    plant: Plant | None = None
    process: subprocess.Popen[bytes] | None = None
    _before: int = 0

    @property
    def log(self) -> Path:
        return self.server.directory / f"{self.name}.log"

    @property
    def checkpoints(self) -> dict[str, Path]:
        """The checkpoint of each query, by its group."""
        return {group: self.server.directory / f"{self.name}-{group}" for group in self.places}

    def start(self, *, is_once: bool = False) -> None:
        """Start it; its queries end with the topic if it reads once, else they continue."""
        given: dict[str, Any] = {
            "remote": self.server.remote,
            "options": dict(self.options),
            "places": base64.b64encode(pickle.dumps(dict(self.places))).decode(),
            "plant": self.plant,
            "checkpoints": {group: str(path) for group, path in self.checkpoints.items()},
            "is_once": is_once,
        }
        self._before = self._starts()
        self.process = start_module("tests.spark.connect_client", given, self.log)

    def runs(self) -> bool:
        """Return whether its queries have started."""
        return self._starts() > self._before

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)

    def _starts(self) -> int:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return text.count("the queries run")


def start(server: Server) -> None:
    """Start a server and then its clients, and wait until their queries run."""
    server.start()
    for each in server.clients:
        each.start()
    for each in server.clients:
        wait_until(each.runs, START_S, f"the queries of {each.name}")


@contextmanager
def serving(directory: Path, **conf: str) -> Iterator[Server]:
    """Yield a server that is not started; it ends afterwards with its clients."""
    server = Server(directory, free_ports(), conf)
    try:
        yield server
    finally:
        server.close()


def shown(directory: Path) -> dict[str, str]:
    """Return every file below a directory, but Parquet, as text."""
    return {
        str(path.relative_to(directory)): path.read_bytes().decode("latin-1")
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".parquet"
    }
