"""How long an application has been there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_groups.runtime.clock import suspension_clock
from spark_groups.spark.source.application_age import STARTS_WITHIN_S, restart_s


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by /proc")
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
