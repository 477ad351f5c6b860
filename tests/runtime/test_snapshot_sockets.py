"""Snapshots over unix sockets: private, one document each, nothing left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.runtime import snapshot_sockets
from spark_groups.runtime.snapshot_sockets import SnapshotPublisher, read_snapshots
from workshop.parts.waiting import LONG_S, wait_until


@pytest.fixture(autouse=True)
def patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a snapshot be waited for, however busy this machine is."""
    monkeypatch.setattr(snapshot_sockets, "READ_TIMEOUT_S", LONG_S)


def test_a_snapshot_is_read_while_it_is_published_and_gone_afterwards(tmp_path: Path) -> None:
    directory = tmp_path / "sockets"
    publisher = SnapshotPublisher(lambda: {"group": "g", "member_id": "m"}, directory)
    publisher.start()
    try:
        expected = {"group": "g", "member_id": "m", "pid": os.getpid()}
        assert read_snapshots(directory=directory) == [expected]
        assert read_snapshots("g", directory=directory) == [expected]
        assert read_snapshots("another", directory=directory) == []
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        publisher.close()
    assert list(directory.iterdir()) == []


def test_a_snapshot_that_fails_once_is_given_the_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("not now")]

    def take() -> dict[str, str]:
        if failures:
            raise failures.pop()
        return {"group": "g"}

    publisher = SnapshotPublisher(take, tmp_path / "sockets")
    publisher.start()
    try:
        assert read_snapshots(directory=tmp_path / "sockets") == []
        wait_until(lambda: len(read_snapshots(directory=tmp_path / "sockets")) == 1)
    finally:
        publisher.close()
    assert "not now" in caplog.text


def test_the_socket_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path;"
        "from spark_groups.runtime.snapshot_sockets import SnapshotPublisher;"
        f"SnapshotPublisher(dict, Path({str(tmp_path)!r})).start(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=800)
    assert len(list(tmp_path.glob("*.sock"))) == 1
    assert read_snapshots(directory=tmp_path) == []
    assert list(tmp_path.glob("*.sock")) == []


def test_a_directory_that_is_no_directory_is_not_used(tmp_path: Path) -> None:
    somewhere = tmp_path / "somewhere"
    somewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(somewhere)
    publisher = SnapshotPublisher(dict, link)
    publisher.start()
    publisher.close()
    assert list(somewhere.iterdir()) == []
    assert read_snapshots(directory=link) == []


def test_where_nothing_was_ever_published_there_is_nothing(tmp_path: Path) -> None:
    assert read_snapshots(directory=tmp_path / "nothing") == []
