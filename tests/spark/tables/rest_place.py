"""The REST service of an example as a place for rows, in a process of its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.documents import ROOT
from workshop.parts.waiting import wait_until

EXAMPLE = ROOT / "examples/rest_sink"
START_S = 400.0


def service_on(port: int) -> Any:
    """Return the example's client of the service on a port."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        return import_module("store").Service(port)
    finally:
        sys.path.remove(str(EXAMPLE))


@dataclass(frozen=True)
class RestPlace:
    """A running service.

    Args:
        port: The port that it listens on.
        database: The file in which it stores orders.
    """

    port: int
    database: Path

    def orders(self) -> list[int]:
        """Return the numbers of the stored orders."""
        with closing(sqlite3.connect(self.database)) as opened:
            return sorted(int(value) for (value,) in opened.execute("SELECT value FROM orders"))

    def offsets(self, partition: int) -> list[int]:
        """Return the offsets of the orders of one of two partitions, to which they alternate."""
        return [number // 2 for number in self.orders() if number % 2 == partition]


@contextmanager
def serving(directory: Path) -> Iterator[RestPlace]:
    """Run the service on a free port."""
    log, database = directory / "server.log", directory / "orders.db"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "server.py", "--port", "0", "--database", str(database)],
            cwd=EXAMPLE,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: log.read_bytes().endswith(b"\n") or process.poll() is not None,
            START_S,
            "the service",
        )
        yield RestPlace(int(log.read_text().rpartition(" ")[2]), database)
    finally:
        process.kill()
        process.wait(START_S)
