"""One running query for each instance id on a host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_groups.errors import GroupError
from spark_groups.runtime import instance_lock
from spark_groups.runtime.instance_lock import GRACE_S, InstanceLock
from workshop.parts.waiting import LONG_S

SERVERS = ("one:9092", "two:9092")
HOLD = """
import sys, time
from pathlib import Path
from spark_groups.runtime.instance_lock import InstanceLock
lock = InstanceLock(("two:9092", "one:9092"), "g", "i1", directory=Path(sys.argv[1]))
lock.acquire()
lock.note(member_id="theirs")
print("held", flush=True)
time.sleep(600)
"""


def lock(directory: Path, instance_id: str = "i1", group_id: str = "g") -> InstanceLock:
    return InstanceLock(SERVERS, group_id, instance_id, directory=directory)


def test_second_one_fails_at_once_and_names_the_holder(tmp_path: Path) -> None:
    first = lock(tmp_path / "locks")
    first.acquire()
    first.note(member_id="m1")
    with pytest.raises(GroupError) as refused:
        lock(tmp_path / "locks").acquire()
    for part in ("'i1'", "'g'", f"process {os.getpid()}", "member m1"):
        assert part in str(refused.value)
    first.release()
    second = lock(tmp_path / "locks")
    second.acquire()
    second.release()
    assert list((tmp_path / "locks").iterdir()) == []


def test_other_instances_and_other_groups_are_none_of_its_business(tmp_path: Path) -> None:
    held = [
        lock(tmp_path),
        lock(tmp_path, "i2"),
        lock(tmp_path, group_id="g2"),
        InstanceLock(("three:9092",), "g", "i1", directory=tmp_path),
    ]
    for each in held:
        each.acquire()
    for each in held:
        each.release()


def test_holder_that_is_leaving_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    first.acquire()
    first.note(leaving=True)
    monkeypatch.setattr(instance_lock, "LEAVING_S", LONG_S)
    threading.Timer(GRACE_S + 0.5, first.release).start()
    second.acquire()
    second.release()


def test_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(GroupError, match=f"process {holder.pid}, member theirs"):
                lock(tmp_path).acquire()
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait(LONG_S)
    mine = lock(tmp_path)
    mine.acquire()
    mine.release()


def test_a_lock_without_a_writable_directory_only_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    useless = lock(tmp_path / "file" / "below")
    useless.acquire()
    useless.note(member_id="m1")
    useless.release()
    assert "cannot detect another query" in caplog.text
