"""A real PostgreSQL for tests, on a Unix socket: no service, no port, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.waiting import wait_until

STOP_S = 60.0


@contextmanager
def running_postgres() -> Iterator[str]:
    """Run a server; yields how libpq reaches it."""
    # Names of Unix sockets are short, and the server's own user has to reach its directory.
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    user = _owner()
    if user is not None:
        shutil.chown(directory, user)
    data = directory / "data"
    initdb = [_program("initdb"), "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "-N"]
    subprocess.run(
        [*map(str, initdb), "--locale=C"], user=user, check=True, capture_output=True, cwd=directory
    )
    settings = {"listen_addresses": "", "unix_socket_directories": directory, "fsync": "off"}
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    dsn = f"host={directory} dbname=postgres user=tests"
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(
            [_program("postgres"), "-D", str(data), *given],
            user=user,
            stdout=log,
            stderr=log,
            cwd=directory,
        )
    try:
        wait_until(lambda: server.poll() is not None or _answers(dsn))
        assert server.poll() is None, (directory / "log").read_text()
        yield dsn
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(STOP_S)
        shutil.rmtree(directory)


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
    assert found is not None, "PostgreSQL is missing: apt-get install postgresql"
    return found
