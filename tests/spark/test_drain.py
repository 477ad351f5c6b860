"""The notes between a driver and its runners."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from spark_groups.spark.drain import DrainNotes

PID = 4711
PLANS = ('{"version": 1, "member": "é"}', '{"version": 1}')


def test_runner_sees_what_the_driver_asks_for(tmp_path: Path) -> None:
    runner = DrainNotes(PID, directory=tmp_path / "notes")
    driver = DrainNotes(PID, directory=tmp_path / "notes")
    assert not runner.is_requested()
    driver.request()
    assert runner.is_requested()
    assert runner.finished() == ()
    driver.announce(PLANS)
    assert runner.finished() == PLANS
    driver.clear()
    assert not runner.is_requested()
    assert runner.finished() == ()
    assert not (tmp_path / "notes").exists()


def test_notes_of_another_jvm_are_not_seen(tmp_path: Path) -> None:
    DrainNotes(PID, directory=tmp_path).request()
    assert not DrainNotes(PID + 1, directory=tmp_path).is_requested()


def test_notes_older_than_the_runner_are_not_seen(tmp_path: Path) -> None:
    driver = DrainNotes(PID, directory=tmp_path)
    driver.request()
    driver.announce(PLANS)
    later = DrainNotes(PID, directory=tmp_path, not_before_s=time.time() + 60)
    assert not later.is_requested()
    assert later.finished() == ()


def test_notes_are_private(tmp_path: Path) -> None:
    DrainNotes(PID, directory=tmp_path / "notes").request()
    assert stat.S_IMODE((tmp_path / "notes").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "notes" / str(PID)).stat().st_mode) == 0o700


def test_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "notes")
    with pytest.raises(PermissionError, match="is not a directory of this user"):
        DrainNotes(PID, directory=tmp_path / "notes").request()


def test_a_new_request_forgets_old_plans(tmp_path: Path) -> None:
    driver = DrainNotes(PID, directory=tmp_path)
    driver.request()
    driver.announce(PLANS)
    driver.request()
    assert driver.finished() == ()


def test_note_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    driver = DrainNotes(PID, directory=tmp_path)
    driver.request()
    (tmp_path / str(PID) / "finished").write_text("[", encoding="utf-8")
    assert driver.finished() == ()
