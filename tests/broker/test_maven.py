"""Jars come from a real HTTP server, several at once, whole or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spark_groups.broker.ivy import fetch_progress
from spark_groups.broker.maven import download

PATHS = [f"org/one/{number}/jar-{number}.jar" for number in range(20)]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder; a jar whose name has "cut" ends early, one with "slow" trickles."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def do_GET(self) -> None:
        """Send a file, or a part of it."""
        if "cut" not in self.path and "slow" not in self.path:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)
        while "slow" in self.path:
            self.wfile.write(b"x")
            time.sleep(0.01)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    for path in PATHS:
        (tmp_path / "served" / path).parent.mkdir(parents=True)
        (tmp_path / "served" / path).write_text(path)
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    return folder


def test_all_jars_are_downloaded_into_one_folder_and_counted(
    repository: str, into: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with fetch_progress("the jars") as progress:
        download(PATHS, into, progress, time.monotonic() + 300, repository)
    assert {jar.name: jar.read_text() for jar in into.iterdir()} == {
        Path(path).name: path for path in PATHS
    }
    assert "fetched 20 of about 20 artifacts" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("path", "allowed_s", "reason"),
    [
        ("org/one/1/missing.jar", 300.0, "404"),
        ("org/one/1/cut.jar", 300.0, "cut.jar ended 990 bytes too early"),
        ("org/one/1/slow.jar", 0.2, "slow.jar was not downloaded in the time allowed"),
    ],
)
def test_a_jar_that_does_not_come_whole_and_in_time_is_an_error(
    repository: str, into: Path, path: str, allowed_s: float, reason: str
) -> None:
    with fetch_progress("the jars") as progress, pytest.raises(OSError, match=reason):
        download([path], into, progress, time.monotonic() + allowed_s, repository)
