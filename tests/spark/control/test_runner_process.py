"""How a runner ends, in processes of their own: the parent plays the JVM."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_groups.spark.control.jvm_connection import has_hung_up
from spark_groups.spark.control.runner_process import (
    CLEARED,
    log_to_stderr,
    writes_to_terminal,
)
from spark_groups.spark.options.option_values import LogLevel
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

RUNNER = """
import sys, time
from pathlib import Path
from spark_groups.spark.control.runner_process import RunnerEnd

def leave():
    time.sleep(0.3)
    with Path(sys.argv[2]).open("a") as log:
        log.write("left\\n")

RunnerEnd(leave, files_directory=Path(sys.argv[1])).watch()
Path(sys.argv[2]).write_text("ready\\n")
while True:
    time.sleep(60)
"""


class Runner:
    """A process that watches for its end, and the log it writes."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "files"
        self.files.mkdir()
        self.log = directory / "log"
        self.command = [sys.executable, "-c", RUNNER, str(self.files), str(self.log)]
        self.process = subprocess.Popen(self.command)
        self.await_ready()

    def await_ready(self) -> None:
        wait_until(lambda: self.log.exists() and self.log.read_text(), what="the runner")

    def lines(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    started = Runner(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


def test_the_parents_two_sigterms_make_it_leave_once(runner: Runner) -> None:
    runner.process.send_signal(signal.SIGTERM)
    runner.process.send_signal(signal.SIGTERM)
    assert runner.process.wait(300) == 0
    assert runner.lines() == ["ready", "left"]


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="the sender cannot be read here")
def test_a_sigterm_from_elsewhere_and_ctrl_c_are_left_to_the_parent(runner: Runner) -> None:
    elsewhere = f"import os; os.kill({runner.process.pid}, {int(signal.SIGTERM)})"
    subprocess.run([sys.executable, "-c", elsewhere], check=True, timeout=30)
    runner.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        runner.process.wait(1.0)
    assert runner.lines() == ["ready"]
    runner.process.send_signal(signal.SIGTERM)
    assert runner.process.wait(300) == 0


def test_the_end_of_the_spark_context_makes_it_leave(runner: Runner) -> None:
    runner.files.rmdir()
    assert runner.process.wait(300) == 0
    assert runner.lines() == ["ready", "left"]


def test_the_death_of_its_parent_makes_it_leave(tmp_path: Path) -> None:
    files, log = tmp_path / "files", tmp_path / "log"
    files.mkdir()
    command = ["-c", RUNNER, str(files), str(log)]
    parent = (
        "import subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, *{command!r}]);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert process.stdout is not None
    runner_pid = int(process.stdout.readline())
    try:
        wait_until(lambda: log.exists() and log.read_text(), what="the runner")
        process.kill()
        process.wait()
        wait_until(lambda: not is_alive(runner_pid), what="the end of the runner")
        assert log.read_text().split() == ["ready", "left"]
    finally:
        process.kill()
        process.stdout.close()
        if is_alive(runner_pid):
            os.kill(runner_pid, signal.SIGKILL)


# A thread that was there before, as numpy has some: it takes signals that are blocked later.
CONNECTED_RUNNER = """
import sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
from pathlib import Path
from spark_groups.spark.control.jvm_connection import jvm_connection
from spark_groups.spark.control.runner_process import RunnerEnd

log = Path(sys.argv[1])

def leave():
    with log.open("a") as file:
        file.write("left\\n")

RunnerEnd(leave, files_directory=None, jvm_connection=jvm_connection()).watch()
log.write_text("ready\\n")
while True:
    time.sleep(60)
"""


def test_sigterm_is_the_parents_only_if_it_hangs_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", CONNECTED_RUNNER, str(log)]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            wait_until(lambda: log.exists() and log.read_text(), what="the runner")
            elsewhere = f"import os; os.kill({process.pid}, {int(signal.SIGTERM)})"
            subprocess.run([sys.executable, "-c", elsewhere], check=True, timeout=30)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.0)
            ours.close()
            assert process.wait(300) == 0
            assert log.read_text().split() == ["ready", "left"]
        finally:
            process.kill()


def test_hang_up_is_seen_and_nothing_is_taken() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not has_hung_up(ours)
        theirs.send(b"x")
        assert not has_hung_up(ours)
        theirs.close()
        assert not has_hung_up(ours), "earlier data must be read first"
        assert ours.recv(1) == b"x"
        assert has_hung_up(ours)


@pytest.fixture
def package(request: pytest.FixtureRequest) -> str:
    """A package of this test without handlers; pytest has handlers on the root."""
    name = f"package_of_{request.node.name}".replace(".", "_")
    logging.getLogger(name).propagate = False
    return name


def as_in_a_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the root logger as a runner's process has it; pytest adds its own for each test."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_lines_have_time_level_and_query(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_in_a_runner(monkeypatch)
    written, ids = io.StringIO(), [None, "7f-1"]
    log_to_stderr(None, lambda: ids.pop(0), stream=written, package=package)
    logger = logging.getLogger(f"{package}.part")
    logger.debug("not shown")
    logger.info("joined")
    logger.warning("lost")
    first, second = written.getvalue().splitlines()
    time = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{time} INFO kafka-group \[runner \d+\]: joined", first)
    assert re.fullmatch(rf"{time} WARN kafka-group \[query 7f-1\]: lost", second)


@pytest.mark.parametrize(
    ("level", "shown"),
    [(LogLevel.DEBUG, "diwe"), (LogLevel.WARN, "we"), (LogLevel.ERROR, "e"), (LogLevel.OFF, "")],
)
def test_level_decides_which_records_are_written(
    package: str, monkeypatch: pytest.MonkeyPatch, level: LogLevel, shown: str
) -> None:
    as_in_a_runner(monkeypatch)
    written = io.StringIO()
    log_to_stderr(level, lambda: "q", stream=written, package=package)
    logger = logging.getLogger(package)
    for say in (logger.debug, logger.info, logger.warning, logger.error):
        say(say.__name__[0])
    assert "".join(line[-1] for line in written.getvalue().splitlines()) == shown


def test_process_that_configures_logging_has_no_line_twice(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    written, own = io.StringIO(), io.StringIO()
    logging.getLogger(package).addHandler(logging.StreamHandler(own))
    log_to_stderr(LogLevel.INFO, lambda: "q", stream=written, package=package)
    logging.getLogger(package).info("joined")
    assert (written.getvalue(), own.getvalue()) == ("", "joined\n")


def test_process_that_configures_logging_later_has_no_line_twice(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    written = io.StringIO()
    log_to_stderr(None, lambda: "q", stream=written, package=package)
    logging.getLogger().handlers.append(logging.NullHandler())
    logging.getLogger(package).info("joined")
    assert written.getvalue() == ""


@pytest.mark.parametrize("is_first", [True, False])
def test_process_that_configures_logging_later_decides_the_level(
    package: str, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    as_in_a_runner(monkeypatch)
    monkeypatch.setattr(logging.getLogger(package), "propagate", True)
    own, root = io.StringIO(), logging.getLogger()
    log_to_stderr(None, lambda: "q", stream=io.StringIO(), package=package)
    monkeypatch.setattr(root, "level", logging.WARNING)
    root.handlers.append(logging.StreamHandler(own))
    if is_first:
        # As `start` does after `listen`.
        log_to_stderr(None, lambda: "q", stream=io.StringIO(), package=package)
    else:
        logging.getLogger(package).warning("lost")
    logging.getLogger(package).info("joined")
    assert own.getvalue() == ("" if is_first else "lost\n")


def test_logging_that_configures_itself_hides_no_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    monkeypatch.setattr(logging.getLogger(package), "propagate", True)
    written, implicit = io.StringIO(), io.StringIO()
    log_to_stderr(None, lambda: "q", stream=written, package=package)
    logger, root = logging.getLogger(package), logging.getLogger()
    monkeypatch.setattr(root, "level", logging.WARNING)
    # As py4j does on Ctrl-C.
    logging.basicConfig(stream=implicit)
    logger.info("left")
    logger.info("closed")
    shown = "".join(f"INFO:{package}:{text}\n" for text in ("left", "closed"))
    assert (implicit.getvalue(), written.getvalue()) == (shown, "")
    root.handlers.clear()
    logger.info("joined")
    assert written.getvalue().endswith("joined\n")


def test_level_that_the_application_sets_later_stays(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    log_to_stderr(None, lambda: "q", stream=io.StringIO(), package=package)
    logging.getLogger().handlers.append(logging.NullHandler())
    logger = logging.getLogger(package)
    logger.warning("lost")
    logger.setLevel(logging.DEBUG)
    logger.warning("lost")
    assert logger.level == logging.DEBUG


@pytest.mark.parametrize("is_propagated", [True, False])
def test_application_that_collects_lines_of_its_own_has_every_line(
    package: str, monkeypatch: pytest.MonkeyPatch, is_propagated: bool
) -> None:
    as_in_a_runner(monkeypatch)
    monkeypatch.setattr(logging.getLogger(package), "propagate", is_propagated)
    own = io.StringIO()
    logger = logging.getLogger(package)
    log_to_stderr(None, lambda: "q", stream=io.StringIO(), package=package)
    logger.addHandler(logging.StreamHandler(own))
    logging.getLogger().handlers.append(logging.NullHandler())
    logger.warning("lost")
    assert own.getvalue() == "lost\n"


def test_record_may_name_its_query_and_a_line_its_process(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    written = io.StringIO()
    log_to_stderr(None, lambda: None, stream=written, package=package, process="driver")
    logging.getLogger(package).info("left", extra={"query_id": "7f-1"})
    logging.getLogger(package).info("closed")
    first, second = written.getvalue().splitlines()
    assert first.endswith(" INFO kafka-group [query 7f-1]: left")
    assert second.endswith(f" INFO kafka-group [driver {os.getpid()}]: closed")


def test_line_on_a_terminal_clears_the_progress_bar(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_runner(monkeypatch)
    written = io.StringIO()
    log_to_stderr(None, lambda: "q", stream=written, package=package, is_terminal=True)
    logging.getLogger(package).info("joined")
    assert written.getvalue().startswith(CLEARED)


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
def test_stderr_of_another_process_is_a_terminal_or_not() -> None:
    leader, terminal = pty.openpty()
    try:
        for stderr, is_terminal in ((terminal, True), (subprocess.PIPE, False)):
            command = [sys.executable, "-c", "input()"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr) as process:
                assert writes_to_terminal(process.pid) is is_terminal
                process.kill()
        assert not writes_to_terminal(process.pid), "it has ended"
    finally:
        os.close(leader)
        os.close(terminal)
