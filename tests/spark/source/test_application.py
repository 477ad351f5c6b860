"""Two queries of one application in one group: who is warned, and of whom."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_groups.group.member.subscription import Subscription
from spark_groups.runtime.engine import suspension_clock
from spark_groups.runtime.snapshot_sockets import SnapshotPublisher
from spark_groups.spark.source import application as siblings_module
from spark_groups.spark.source.application import (
    CLIENT_ID_MAX,
    STARTS_WITHIN_S,
    Application,
    application_name,
    as_client_id,
    restart_s,
    session_began_at,
    siblings,
    warn_of_siblings,
)
from workshop.parts.waiting import wait_until

JVM, RUNNER = 7, 8
MINE = Application(jvm_pid=7, subscription=Subscription.of_names("orders,bills"), instance_id=None)


def view(pid: int = 2, **changes: Any) -> dict[str, Any]:
    return {"group": "g", "pid": pid, "member_id": "m2", **MINE.as_plain(), **changes}


@pytest.mark.parametrize(
    ("other", "is_one"),
    [
        (view(), True),
        (view(pid=1), False),
        (view(is_ending=True), False),
        (view(jvm_pid=8), False),
        (view(instance_id="i"), False),
        (view(named_client_id="second"), False),
        (view(subscribed_topic_names=["orders"]), False),
        ({"group": "g", "pid": 2}, False),
    ],
    ids=[
        "same",
        "itself",
        "ending",
        "another JVM",
        "static",
        "named",
        "other topics",
        "other version",
    ],
)
def test_sibling_is_of_the_same_application_and_subscription(
    other: Mapping[str, Any], is_one: bool
) -> None:
    assert bool(list(siblings([other], MINE, pid=1))) is is_one


def test_warning_names_the_other_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = SnapshotPublisher(view, tmp_path)
    publisher.start()
    with caplog.at_level(logging.WARNING):
        siblings_module._warn("g", MINE, tmp_path)
        assert caplog.text == "", "a query is not its own sibling"
        monkeypatch.setattr(siblings_module, "os", _Another)
        warn_of_siblings("g", replace(MINE, instance_id="i"), tmp_path)
        warn_of_siblings("g", MINE, tmp_path)
        wait_until(lambda: caplog.text, what="the warning")
    publisher.close()
    assert f"(runner {os.getpid()}, member m2)" in caplog.text
    assert "foreachBatch" in caplog.text
    assert caplog.text.count("another query of this application") == 1


class _Another:
    """Another process."""

    @staticmethod
    def getpid() -> int:
        return 0


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
def test_age_of_a_process_is_that_since_its_start() -> None:
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        took_s = restart_s(process.pid, process.pid, None)
        assert took_s is not None
        assert 0 <= took_s <= time.monotonic() - began_s + 0.1
        assert process.stdin is not None
        process.stdin.close()


def stat(directory: Path, **ages_s: float) -> Path:
    """A JVM and a runner of these ages, whose names try to be other fields."""
    for pid, process in ((JVM, "jvm"), (RUNNER, "runner")):
        place = directory / str(pid)
        place.mkdir()
        # Ages may exceed the time since this machine was started.
        started_s = suspension_clock() - ages_s[process]
        ticks = int(started_s * os.sysconf("SC_CLK_TCK"))
        fields = ["S", *["0"] * 18, str(ticks), "0", "0"]
        (place / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n", encoding="utf-8")
    return directory


def test_restart_takes_as_long_as_the_starts_of_the_session_and_of_the_query(
    tmp_path: Path,
) -> None:
    processes = stat(tmp_path, jvm=60, runner=5)
    took_s = restart_s(JVM, RUNNER, time.time() - 40, processes=processes)
    assert took_s == pytest.approx(20 + 5, abs=15)


def test_session_that_was_simply_open_says_nothing_of_a_restart(tmp_path: Path) -> None:
    processes = stat(tmp_path, jvm=211, runner=2)
    took_s = restart_s(JVM, RUNNER, time.time() - 205, processes=processes)
    assert took_s == pytest.approx(6 + 2, abs=15)
    assert restart_s(JVM, RUNNER, None, processes=processes) == pytest.approx(2, abs=15)


def test_start_of_hours_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    processes = stat(tmp_path, jvm=STARTS_WITHIN_S + 60, runner=1)
    assert restart_s(JVM, RUNNER, time.time() - 10, processes=processes) is None


def test_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert restart_s(JVM, RUNNER, None, processes=tmp_path) is None
    assert application_name(JVM, processes=tmp_path) == ""
    assert session_began_at() is None, "this process has no SparkContext"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("java SparkSubmit --conf spark.app.name=flights 1 pyspark-shell", "flights 1"),
        ("java SparkSubmit --name consume --conf spark.ui.enabled=false consume.py", "consume"),
        ("java SparkSubmit --name first --conf spark.app.name=last x.py", "last"),
        ("java SparkSubmit consume.py", ""),
    ],
)
def test_name_of_the_application_is_in_the_command_of_its_jvm(
    tmp_path: Path, command: str, name: str
) -> None:
    place = tmp_path / str(JVM)
    place.mkdir()
    # A space inside of a word.
    words = command.replace("flights 1", "flights_1").split()
    text = "\0".join(words).replace("flights_1", "flights 1")
    (place / "cmdline").write_text(text + "\0", encoding="utf-8")
    assert application_name(JVM, processes=tmp_path) == name


@pytest.mark.parametrize(
    ("name", "client_id"),
    [
        ("flights-1", "flights-1"),
        ("Flüge nach Zürich", "Fl-ge-nach-Z-rich"),
        (" My App (v2.1) ", "My-App-v2.1"),
        ("x" * 200, "x" * CLIENT_ID_MAX),
        ("✈", None),
        ("", None),
    ],
)
def test_client_id_has_the_legal_characters_of_a_name(name: str, client_id: str | None) -> None:
    assert as_client_id(name) == client_id
