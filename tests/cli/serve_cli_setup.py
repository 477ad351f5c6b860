"""Shared by test_serve_cli.py and other tests."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from workshop.parts.processes import environment
from workshop.parts.waiting import LONG_S

WAIT_S = LONG_S


@contextmanager
def started(servers: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `spark-groups serve`, and give its process and address."""
    options = ("--port", "0", "--interval", "0.2", "--timeout", "5", *more)
    command = (sys.executable, "-m", "spark_groups.cli.main", "serve")
    process = subprocess.Popen(
        [*command, "--bootstrap-server", servers, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED="1"),
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, (line, process.poll())
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


@contextmanager
def serving(servers: str, *more: str) -> Iterator[str]:
    """Run `spark-groups serve`, and give its address."""
    with started(servers, *more) as (_, url):
        yield url


def asked(url: str, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
    connection.request("GET", path)
    return connection.getresponse()
