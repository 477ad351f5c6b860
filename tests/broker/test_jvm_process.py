"""Both ways to run a JVM, here with smaller processes in its place."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_groups.broker.jvm_process import DetachedJvm, JvmProcess, SupervisedJvm, send_signal
from spark_groups.errors import EmbeddedKafkaError
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
KINDS: dict[str, Callable[[], JvmProcess]] = {
    "supervised": lambda: SupervisedJvm(None),
    "detached": DetachedJvm,
}


@pytest.fixture(params=sorted(KINDS))
def process(request: pytest.FixtureRequest) -> JvmProcess:
    return KINDS[request.param]()


def test_exit_codes_and_output(process: JvmProcess, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for code in (0, 3):
        process.run([sys.executable, "-c", f"print({code}, flush=True); exit({code})"], output)
        assert process.wait(300) == code
        assert process.wait(0) == code
        assert process.pid is None
    assert output.read_text().split() == ["0", "3"]
    process.close()


def test_a_signal_reaches_it(process: JvmProcess, tmp_path: Path) -> None:
    process.run(SLEEP, tmp_path / "out")
    assert process.wait(0.0) is None
    pid = process.pid
    assert pid is not None
    assert send_signal(process, signal.SIGKILL)
    assert process.wait(300) == -signal.SIGKILL
    assert not is_alive(pid)
    assert not send_signal(process, signal.SIGKILL)
    process.close()


def test_nothing_to_signal_before_it_runs(process: JvmProcess) -> None:
    assert not send_signal(process, signal.SIGTERM)
    process.close()


def test_closing_ends_the_supervised_one(tmp_path: Path) -> None:
    process = SupervisedJvm(None)
    process.run(SLEEP, tmp_path / "out")
    pid = process.pid
    assert pid is not None
    process.close()
    wait_until(lambda: not is_alive(pid))


def test_a_detached_one_runs_on(tmp_path: Path) -> None:
    process = DetachedJvm()
    process.run(SLEEP, tmp_path / "out")
    pid = process.pid
    assert pid is not None
    assert is_alive(pid)
    assert send_signal(process, signal.SIGKILL)
    assert process.wait(300) is not None


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    process = SupervisedJvm(None)
    with pytest.raises(EmbeddedKafkaError, match=r"/absent/java cannot be started: .*No such file"):
        process.run(["/absent/java"], tmp_path / "out")
    process.close()
