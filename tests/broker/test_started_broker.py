"""The record of a started broker, and that no other process is taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_groups.broker.started_broker import (
    BROKER_ID_FLAG,
    StartedBroker,
    forget_started,
    is_its_jvm,
    locked_state,
    running_broker,
    state_dir,
    stop_broker,
    write_started,
)
from spark_groups.errors import EmbeddedKafkaError
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_GROUPS_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def stubborn() -> Iterator[subprocess.Popen[str]]:
    """A process that is marked like a broker's JVM and ignores SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, f"{BROKER_ID_FLAG}/folder"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def started(pid: int, log_dir: str = "/folder") -> StartedBroker:
    return StartedBroker(pid, "4.3.1", "127.0.0.1:9092", log_dir, time.time())


def test_a_broker_is_remembered_and_forgotten(stubborn: subprocess.Popen[str]) -> None:
    with locked_state():
        assert running_broker() is None
        broker = started(stubborn.pid)
        write_started(broker)
        assert running_broker() == broker
        forget_started()
        forget_started()
        assert running_broker() is None


def test_another_process_of_that_pid_is_not_the_broker(stubborn: subprocess.Popen[str]) -> None:
    assert is_its_jvm(started(stubborn.pid))
    for other in (started(os.getpid()), started(stubborn.pid, "/other")):
        assert not is_its_jvm(other)
        assert stop_broker(other, 1.0)
    assert is_alive(stubborn.pid)


def test_one_that_ignores_sigterm_is_killed(stubborn: subprocess.Popen[str]) -> None:
    assert not stop_broker(started(stubborn.pid), 0.1)
    wait_until(lambda: not is_alive(stubborn.pid), what="its end")


def test_two_commands_do_not_run_at_once() -> None:
    with locked_state(), pytest.raises(EmbeddedKafkaError, match="another"), locked_state():
        pass


def test_a_state_file_that_cannot_be_read_is_named() -> None:
    with locked_state():
        (state_dir() / "broker.json").write_text("{")
    with pytest.raises(EmbeddedKafkaError, match=r"broker\.json cannot be read"):
        running_broker()


def test_a_state_directory_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARK_GROUPS_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(EmbeddedKafkaError, match="SPARK_GROUPS_STATE_DIR"), locked_state():
        pass
