"""`spark-groups watch`: lines, documents and a terminal, and the numbers of Kafka's own tool."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from spark_groups.lab.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.observation.frames import GroupHistory
from spark_groups.observation.views import view_group
from spark_groups.ops.render_frame import clock_time
from spark_groups.ops.watch_cli import EventLines, drawing
from tests.brokers import Row, create_topic, produce
from tests.observation.groups import ONE, TWO, member, read
from tests.ops.commands import invoke
from tests.ops.test_cli import as_kafka_writes, kafkas_own
from tests.ops.test_page_server import documents
from tests.ops.test_serve_cli import asked, serving
from tests.processes import environment
from tests.runtime.members import queries
from tests.waiting import wait_until

ALONE = view_group(read(member(ONE, [0, 1])))
SHARED = view_group(read(member(ONE, [0]), member(TWO, [1])))


def test_without_a_terminal_there_is_a_line_for_each_event_and_now_and_then_figures() -> None:
    console = Console(file=io.StringIO(), width=10_000, color_system=None, _environ={})
    output, history = EventLines(console), GroupHistory("flight-readers")
    with console.capture() as written:
        output.show(history.seen(ALONE, 100.0))
        output.show(history.seen(ALONE, 105.0))
        output.show(history.seen(SHARED, 107.0))
        output.show(history.seen(SHARED, 110.0))
        output.show(history.failed("refused", 117.5))
    figures = "Stable  group epoch 7  members {}  partitions 2 (of unknown lag 2)  lag — (—)"
    assert written.get().splitlines() == [
        f"{clock_time(100.0)}  {figures.format(1)}",
        f"{clock_time(107.0)}  app-2 22222222 joined from 127.0.0.1",
        f"{clock_time(107.0)}  flights 1 moved from app-1 11111111 to app-2 22222222",
        f"{clock_time(107.0)}  {figures.format(2)}",
        f"{clock_time(117.5)}  not readable: refused",
        f"{clock_time(117.5)}  stale: refused",
    ]


def test_a_terminal_keeps_the_last_frame_when_it_ends() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, height=30, _environ={})
    history = GroupHistory("flight-readers")
    with drawing(console) as show:
        show(history.seen(ALONE, 100.0))
        show(history.seen(SHARED, 107.0))
    drawn, last = file.getvalue().split("\x1b[?1049l")
    assert drawn.count("group ") >= 2
    assert "app-2 22222222 joined" in last
    assert "\x1b[?1049" not in last


def test_what_is_never_there_is_exit_code_1_and_says_why() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    asked = ("watch", "g", "--bootstrap-server", address, "--timeout", "0.2", "--interval", "0.1")
    lines = invoke(*asked, "--count", "2")
    assert lines.exit_code == 1
    assert f"not readable: {address}" in lines.stdout
    assert lines.stdout.count("nothing is known yet") == 1
    documents = invoke(*asked, "--duration", "0.1", "--json")
    assert documents.exit_code == 1
    (document,) = map(json.loads, documents.stdout.splitlines())
    assert (document["group"], document["partitions"]) == (None, [])
    assert address in document["stale"]["reason"]


@contextmanager
def watching(group_id: str, servers: str, *more: str, **streams: Any) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "spark_groups.ops.cli", "watch", group_id]
    process = subprocess.Popen(
        [*command, "--bootstrap-server", servers, "--interval", "0.2", *more],
        stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm", NO_COLOR="1"),
        **streams,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.long
@pytest.mark.broker
def test_watch_the_page_and_kafkas_own_tool_have_the_same_numbers(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 4)
    produce(servers, topic_name, [Row(b"x", partition=each % 3) for each in range(90)])
    with queries(servers, group_id, topic_name) as start, serving(servers) as url:
        query = start()
        query.plan_rows()
        query.commit_all()
        produce(servers, topic_name, [Row(b"y", partition=1)] * 7)
        done = invoke("watch", group_id, "--bootstrap-server", servers, "--count", "1", "--json")
        answer = asked(url, f"/events?group={group_id}")
        page = next(documents(answer))
        answer.close()
        expected = kafkas_own(kafka, group_id)
        state = kafka_state(kafka, group_id)
    watched = json.loads(done.stdout)
    assert done.exit_code == 0
    for frame in (watched, page):
        group = frame["group"]
        shown = {
            each["partition"]: tuple(
                as_kafka_writes(each[name])
                for name in ("committed_offset", "log_end_offset", "lag", "owner")
            )
            for each in group["partitions"]
        }
        assert shown == expected
        assert frame["stale"] is None
        epochs = (group["group_epoch"], group["assignment_epoch"], group["totals"]["members"])
        assert (group["group_state"], *map(str, epochs)) == state
        assert [each["partition"] for each in frame["partitions"]] == [0, 1, 2, 3]
    assert expected[1] == ("30", "37", "7", query_owner(watched))


def query_owner(frame: dict[str, Any]) -> str:
    (only,) = frame["group"]["members"]
    return str(only["member_id"])


def kafka_state(kafka: EmbeddedKafka, group_id: str) -> tuple[str, ...]:
    """Return state, group epoch, target assignment epoch and members, as Kafka's tool has them."""
    text = kafka.run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group_id),
        *("--state", "--verbose"),
    )
    row = next(line.split() for line in text.splitlines() if line.startswith(group_id))
    return tuple(row[-4:])


@pytest.mark.long
@pytest.mark.broker
def test_a_hand_over_is_told_line_by_line_and_ctrl_c_is_a_clean_end(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    log, errors = tmp_path / "lines", tmp_path / "errors"
    with queries(servers, group_id, topic_name) as start, log.open("wb") as out:
        first = start()
        run_until_assigned(first, 2)
        with (
            errors.open("wb") as err,
            watching(group_id, servers, stdout=out, stderr=err) as process,
        ):
            wait_for(log, "members 1  partitions 2")
            second = start()
            run_until_assigned(second, 1, first)
            wait_for(log, " moved from query-like ")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
    text = log.read_text()
    assert f"{topic_name} " in text
    assert text.index(" joined from ") < text.index(" moved from ")
    assert errors.read_text() == ""


def run_until_assigned(query: Any, partitions: int, *others: Any) -> None:
    def is_assigned() -> bool:
        for each in (query, *others):
            each.run()
        return len(query.assigned) == partitions

    wait_until(is_assigned, what=f"an assignment of {partitions}")


def wait_for(path: Path, words: str) -> str:
    wait_until(lambda: words in path.read_text(errors="replace"), what=f"{words!r} in {path}")
    return path.read_text()


@pytest.mark.long
@pytest.mark.broker
def test_a_terminal_is_left_as_it_was(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    with queries(servers, group_id, topic_name) as start:
        run_until_assigned(start(), 2)
        ours, its = pty.openpty()
        with watching(group_id, servers, stdout=its, stderr=its) as process:
            os.close(its)
            written = read_until(ours, b"LAG CHANGE")
            process.send_signal(signal.SIGINT)
            written += read_until(ours, None)
            assert process.wait(20) == 130
        os.close(ours)
    screen, last = written.split(b"\x1b[?1049l")
    assert b"\x1b[?1049h" in screen
    # The cursor is shown again, and the last frame stays.
    assert screen.count(b"\x1b[?25l") == (screen + last).count(b"\x1b[?25h") >= 1
    assert group_id.encode() in last


def read_until(descriptor: int, words: bytes | None) -> bytes:
    found = b""
    while words is None or words not in found:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:
            break
        if not chunk:
            break
        found += chunk
    return found
