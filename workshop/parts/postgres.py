"""A real PostgreSQL on a Unix socket, for a run and for tests: no service, no port.

The server is a process of the one that starts it, and ends with it, even if that one is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from workshop.parts.lifetime import end_with

START_S: Final = 120.0
STOP_S: Final = 60.0


class PostgresError(Exception):
    """PostgreSQL is missing, or does not start."""


@contextmanager
def running_postgres() -> Iterator[str]:
    """Run a server; yields how libpq reaches it.

    Raises:
        PostgresError: There is no PostgreSQL, or it does not start.
    """
    programs = [_program(name) for name in ("initdb", "postgres")]
    # Names of Unix sockets are short, and the server's own user has to reach its directory.
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        yield from _served(directory, *programs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _served(directory: Path, initdb: str, postgres: str) -> Iterator[str]:
    user = _owner()
    if user is not None:
        shutil.chown(directory, user)
    data = directory / "data"
    made = subprocess.run(
        [initdb, "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "-N", "--locale=C"],
        user=user,
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
    )
    if made.returncode:
        raise PostgresError(f"initdb failed: {made.stderr}")
    # Processes die here, not machines: nothing has to reach a disk.
    settings = {"listen_addresses": "", "unix_socket_directories": directory, "fsync": "off"}
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    dsn = f"host={directory} dbname=postgres user=tests"
    parent = os.getpid()
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(
            [postgres, "-D", str(data), *given],
            user=user,
            stdout=log,
            stderr=log,
            cwd=directory,
            # A key that interrupts the run does not reach the server, which members still use.
            start_new_session=True,
            preexec_fn=lambda: end_with(parent, signal.SIGQUIT),  # noqa: PLW1509
        )
    try:
        _await_answer(server, dsn, directory / "log")
        yield dsn
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(STOP_S)


def _await_answer(server: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while not _answers(dsn):
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise PostgresError(f"PostgreSQL does not start: {log.read_text()}")
        time.sleep(0.05)


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def _owner() -> str | None:
    """Return whom the server runs as; it refuses to run as root."""
    if os.geteuid():
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _program(name: str) -> str:
    """Return where a program of PostgreSQL is; Debian does not put it on the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(versions[-1]) if versions else None)
    if found is None:
        raise PostgresError("PostgreSQL is missing: apt-get install postgresql")
    return found
