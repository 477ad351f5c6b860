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
    STARTS_WITHIN_S,
    Application,
    restart_s,
    siblings,
    warn_of_siblings,
)
from workshop.parts.waiting import wait_until

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
        (view(subscribed_topic_names=["orders"]), False),
        ({"group": "g", "pid": 2}, False),
    ],
    ids=["same", "itself", "ending", "another JVM", "static", "other topics", "other version"],
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
        age_s = restart_s(process.pid)
        assert age_s is not None
        assert 0 <= age_s <= time.monotonic() - began_s + 0.1
        assert process.stdin is not None
        process.stdin.close()


def stat(directory: Path, started_s: float) -> Path:
    """A process of this start, whose name tries to be other fields."""
    place = directory / "7"
    place.mkdir()
    ticks = int(started_s * os.sysconf("SC_CLK_TCK"))
    fields = ["S", *["0"] * 18, str(ticks), "0", "0"]
    (place / "stat").write_text(f"7 (a ) name) {' '.join(fields)}\n", encoding="utf-8")
    return directory


def test_name_of_a_process_does_not_confuse(tmp_path: Path) -> None:
    age_s = restart_s(7, processes=stat(tmp_path, suspension_clock() - 60))
    assert age_s == pytest.approx(60, abs=5)


def test_old_jvm_tells_nothing_of_a_restart(tmp_path: Path) -> None:
    started_s = suspension_clock() - STARTS_WITHIN_S - 60
    assert started_s < 0 or restart_s(7, processes=stat(tmp_path, started_s)) is None


def test_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert restart_s(7, processes=tmp_path) is None
