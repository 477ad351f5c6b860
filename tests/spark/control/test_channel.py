"""The channel between a driver and its runners, over real sockets."""

from __future__ import annotations

import errno
import logging
import os
import queue
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_groups.spark.control import channel as control
from spark_groups.spark.control.channel import (
    ControlClient,
    ControlServer,
    Link,
    control_directories,
    suffix_of,
)
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Drain,
    Draining,
    Introduced,
    Listening,
    Message,
    Released,
    RunEnded,
)
from workshop.parts.waiting import wait_until

JVM = 4711
LISTENING = Listening(reported_groups=("g",), holds_revocations=False)
INTRODUCED = Introduced(pid=12, group_id="flights")


class Side:
    """One side of the channel, and what came to it."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.lost: list[Link] = []

    def received(self, link: Link, message: Message) -> None:
        self.messages.put(message)

    def next(self) -> Message:
        return self.messages.get(timeout=300)


class Driver(Side):
    """A driver that listens."""

    def __init__(
        self, *directories: Path, jvm_pid: int = JVM, suffix: str = control.SUFFIX
    ) -> None:
        super().__init__()
        self.server = ControlServer(jvm_pid, LISTENING, self.received, directories, suffix=suffix)
        self.server.start("tests lack it")


class Runner(Side):
    """A runner that looks for drivers."""

    def __init__(self, *directories: Path, suffixes: tuple[str, ...] = (control.SUFFIX,)) -> None:
        super().__init__()
        self.client = ControlClient(
            JVM, INTRODUCED, self.received, self.lost.append, directories, suffixes=suffixes
        )
        self.found = self.client.start()


@pytest.fixture
def places(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def driver(
    places: ExitStack, *directories: Path, jvm_pid: int = JVM, suffix: str = control.SUFFIX
) -> Driver:
    side = Driver(*directories, jvm_pid=jvm_pid, suffix=suffix)
    places.callback(side.server.close)
    return side


def runner(places: ExitStack, *directories: Path) -> Runner:
    side = Runner(*directories)
    places.callback(side.client.close)
    return side


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Let one call fail as if the process had no file descriptor left."""
    whole = getattr(owner, name)
    failures = iter([OSError(errno.EMFILE, os.strerror(errno.EMFILE))])

    def fail(*arguments: object) -> object:
        for failure in failures:
            raise failure
        return whole(*arguments)

    monkeypatch.setattr(owner, name, fail)


def test_both_sides_say_who_they_are_and_then_talk(places: ExitStack, tmp_path: Path) -> None:
    listener = driver(places, tmp_path / "c")
    member = runner(places, tmp_path / "c")
    assert member.found == 1
    assert member.next() == LISTENING
    assert listener.next() == INTRODUCED
    listener.server.broadcast(Drain())
    assert member.next() == Drain()
    member.client.broadcast(Draining())
    assert listener.next() == Draining()
    assert listener.server.await_runners({12}, 0.0)
    assert not listener.server.await_runners({12, 13}, 0.0)


def test_a_runner_finds_a_driver_that_begins_to_listen_later(
    places: ExitStack, tmp_path: Path
) -> None:
    member = runner(places, tmp_path / "c")
    assert member.found == 0
    listener = driver(places, tmp_path / "c")
    assert listener.server.await_runners({12}, 300)
    assert member.next() == LISTENING


def test_a_runner_talks_to_every_driver_of_its_jvm_and_to_no_other(
    places: ExitStack, tmp_path: Path
) -> None:
    listeners = [driver(places, tmp_path / "c") for _ in range(2)]
    other = driver(places, tmp_path / "c", jvm_pid=JVM + 1)
    member = runner(places, tmp_path / "c")
    assert member.found == 2
    assert [each.next() for each in listeners] == [INTRODUCED, INTRODUCED]
    assert other.messages.empty()


def test_runner_links_with_listeners_and_functions_of_its_key_and_not_with_other_functions(
    places: ExitStack, tmp_path: Path
) -> None:
    listener = driver(places, tmp_path / "c")
    keys = ("one", "other")
    functions = {key: driver(places, tmp_path / "c", suffix=suffix_of(key)) for key in keys}
    for key in keys:
        member = Runner(tmp_path / "c", suffixes=(control.SUFFIX, suffix_of(key)))
        places.callback(member.client.close)
        assert member.found == 2
        assert [listener.next(), functions[key].next()] == [INTRODUCED] * 2
    assert runner(places, tmp_path / "c").found == 1
    assert all(each.messages.empty() for each in functions.values())
    assert not any(key in path.name for path in (tmp_path / "c").iterdir() for key in keys)


def test_last_messages_of_a_runner_arrive_before_its_links_close(
    places: ExitStack, tmp_path: Path
) -> None:
    listener, member = driver(places, tmp_path / "c"), runner(places, tmp_path / "c")
    assert listener.next() == INTRODUCED
    assert not listener.server.await_ends({"flights"}, 0.0)
    assert listener.server.await_ends({"orders"}, 0.0)
    said = [RunEnded(group_id="flights", query_id="q", line=str(each)) for each in range(100)]
    for message in said:
        member.client.broadcast(message)
    member.client.close()
    assert [listener.next() for _ in said] == said
    assert listener.server.await_ends({"flights"}, 300)


def test_runner_that_has_not_said_its_group_may_be_of_any(
    places: ExitStack, tmp_path: Path
) -> None:
    listener = driver(places, tmp_path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(next(tmp_path.glob("*.sock"))))
        assert silent.recv(1), "accepted"
        assert not listener.server.await_ends({"flights"}, 0.0)
        assert listener.server.await_ends((), 0.0), "no run has ended"
    assert listener.server.await_ends({"flights"}, 300)


def test_the_end_of_a_driver_is_noticed(places: ExitStack, tmp_path: Path) -> None:
    listener = driver(places, tmp_path / "c")
    member = runner(places, tmp_path / "c")
    assert listener.next() == INTRODUCED
    listener.server.close()
    wait_until(lambda: member.lost, what="the end of the link")
    assert member.client.links() == []
    assert not list((tmp_path / "c").iterdir())


def test_the_end_of_a_runner_is_noticed(places: ExitStack, tmp_path: Path) -> None:
    listener = driver(places, tmp_path / "c")
    member = runner(places, tmp_path / "c")
    assert listener.server.await_runners({12}, 300)
    member.client.close()
    wait_until(lambda: not listener.server.await_runners({12}, 0.0), what="the runner to be gone")


def test_the_socket_of_a_dead_process_is_removed(places: ExitStack, tmp_path: Path) -> None:
    directory = tmp_path / "c"
    directory.mkdir(mode=0o700)
    dead = directory / f"{JVM}-1-0.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(dead))
    assert runner(places, directory).found == 0
    assert not dead.exists()


def test_what_processes_that_are_gone_left_behind_is_removed_by_the_next_driver(
    places: ExitStack, tmp_path: Path
) -> None:
    directory = tmp_path / "c"
    directory.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(300)
    gone = directory / f"1-{ended.pid}-0.sock"
    alive = directory / f"1-{os.getppid()}-0.sock"
    other = directory / "a-b-c.sock"
    for path in (gone, alive, other):
        path.touch()
    driver(places, directory)
    assert not gone.exists()
    assert alive.exists()
    assert other.exists()


def test_a_driver_without_room_for_a_runner_takes_it_when_there_is_some(
    places: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail_once(monkeypatch, socket.socket, "accept")
    driver(places, tmp_path / "c")
    assert runner(places, tmp_path / "c").next() == LISTENING
    assert "Too many open files" in caplog.text


def test_a_runner_that_cannot_look_for_drivers_looks_again(
    places: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = runner(places, tmp_path / "c")
    fail_once(monkeypatch, control, "is_private")
    driver(places, tmp_path / "c")
    assert member.next() == LISTENING
    assert "cannot look for listening drivers" in caplog.text


def test_a_malformed_line_is_ignored_with_a_warning(
    places: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = driver(places, tmp_path / "c")
    (path,) = (tmp_path / "c").glob("*.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(str(path))
        stranger.sendall(b'hello\n{"message": "Released", "number": 3}\n')
        assert listener.next() == Released(number=3)
    assert "ignoring a line" in caplog.text
    assert "hello" in caplog.text


def test_a_line_that_is_too_long_ends_the_link(
    places: ExitStack,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "MAX_LINE_BYTES", 1000)
    listener = driver(places, tmp_path / "c")
    member = runner(places, tmp_path / "c")
    assert listener.next() == INTRODUCED
    member.client.broadcast(Introduced(pid=12, group_id="x" * 2000))
    wait_until(lambda: member.lost, what="the end of the link")
    assert "above 1000 bytes" in caplog.text


def test_a_side_that_reads_nothing_is_cut_off_and_does_not_block_others(
    places: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = driver(places, tmp_path / "c")
    (path,) = (tmp_path / "c").glob("*.sock")
    report = BatchReported(
        plan="x" * 100_000,
        query_id="q",
        is_stateful=False,
        trigger_interval_s=0.0,
    )
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf,
        caplog.at_level(logging.WARNING),
    ):
        deaf.connect(str(path))
        deaf.sendall(b'{"message": "Introduced", "pid": 99, "group_id": "g"}\n')
        assert listener.server.await_runners({99}, 300)
        for _ in range(2 * control.MAX_WAITING_MESSAGES):
            listener.server.broadcast(report)
        wait_until(lambda: not listener.server.await_runners({99}, 0.0), what="the link to be cut")
    assert "does not read" in caplog.text


def test_the_directory_is_private(places: ExitStack, tmp_path: Path) -> None:
    driver(places, tmp_path / "c")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


def test_a_driver_whose_directory_is_taken_takes_the_next_one_and_is_found(
    places: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    taken, free = tmp_path / "taken", tmp_path / "free"
    os.symlink(tmp_path / "elsewhere", taken)
    listener = driver(places, taken, free)
    assert os.listdir(tmp_path / "elsewhere") == []
    member = runner(places, taken, free)
    assert member.found == 1
    assert listener.next() == INTRODUCED
    assert caplog.text == ""


def test_a_driver_without_any_directory_warns_and_has_no_channel(
    places: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").touch()
    listener = driver(places, tmp_path / "taken")
    assert "no control channel" in caplog.text
    assert "so tests lack it." in caplog.text
    assert "XDG_RUNTIME_DIR" in caplog.text
    assert "taken is not a directory of this user: remove it" in caplog.text
    assert listener.server.broadcast(Drain()) == 0
    assert not listener.server.await_runners({12}, 60.0)
    listener.server.close()


def test_sockets_lie_in_a_runtime_directory_of_this_user_alone_or_below_sparks_files(
    tmp_path: Path,
) -> None:
    runtime, files = tmp_path / "runtime", tmp_path / "files"
    runtime.mkdir(mode=0o700)
    mine = files / "spark-groups-control"
    assert control_directories(str(runtime), files) == (runtime / "spark-groups-control", mine)
    runtime.chmod(0o750)
    assert control_directories(str(runtime), files) == (mine,)
    assert control_directories(str(tmp_path / "none"), files) == (mine,)
    assert control_directories("", files) == (mine,)
    assert control_directories(None, None) == ()


def test_more_runners_than_there_may_be_are_turned_away(
    places: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_LINKS", 1)
    listener = driver(places, tmp_path / "c")
    first = runner(places, tmp_path / "c")
    assert listener.next() == INTRODUCED
    second = runner(places, tmp_path / "c")
    wait_until(lambda: second.lost, what="the second to be turned away")
    assert len(first.client.links()) == 1
