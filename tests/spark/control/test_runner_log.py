"""The log of a runner: its form, its level, and who else writes it."""

from __future__ import annotations

import io
import logging
import re

import pytest

from spark_groups.spark.control.runner_log import log_to_stderr
from spark_groups.spark.options.values import LogLevel


@pytest.fixture
def package(request: pytest.FixtureRequest) -> str:
    """A package of this test's own, whose lines nobody writes: pytest has handlers on the root."""
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
def test_level_says_what_is_written(
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
