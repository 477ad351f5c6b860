"""`spark-groups watch`: lines, documents and a terminal, and the numbers of Kafka's own tool."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.cli.watch_cli import (
    EventLines,
    clock_time,
    divide,
    drawing,
    moment,
    rate_text,
    render_frame,
    sparkline,
    summary_line,
)
from spark_groups.observation.frames import Frame, GroupHistory
from spark_groups.observation.lag_times import Deletion, LagTime
from spark_groups.observation.views import GroupView, group_totals, view_group
from tests.cli.cli_setup import as_kafka_writes, kafkas_own
from tests.cli.commands import invoke
from tests.cli.page_server_setup import documents
from tests.cli.rendered import lines
from tests.cli.serve_cli_setup import asked, serving
from tests.cli.watched_groups import assigned_group, lagging_group, run_until_assigned
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.revocations_setup import revoking_group
from workshop.parts.processes import environment
from workshop.parts.waiting import LONG_S, wait_until

ALONE = view_group(read(member(ONE, [0, 1])))
SHARED = view_group(read(member(ONE, [0]), member(TWO, [1])))


def test_without_a_terminal_each_event_is_a_line_with_figures_between() -> None:
    console = Console(file=io.StringIO(), width=10_000, color_system=None, _environ={})
    output, history = EventLines(console), GroupHistory("flight-readers")
    with console.capture() as written:
        output.show(history.seen(ALONE, 100.0))
        output.show(history.seen(ALONE, 105.0))
        output.show(history.seen(SHARED, 107.0))
        output.show(history.seen(SHARED, 110.0))
        output.show(history.failed("refused", 117.5))
    figures = "Stable  lag — (—)  members {}  partitions 2 (unknown lag 2)  group epoch 7"
    assert written.get().splitlines() == [
        f"{clock_time(100.0)}  {figures.format(1)}",
        f"{clock_time(107.0)}  app-2 22222222 joined from 127.0.0.1",
        f"{clock_time(107.0)}  flights 1 moved from app-1 11111111 to app-2 22222222",
        f"{clock_time(107.0)}  {figures.format(2)}",
        f"{clock_time(117.5)}  not readable: refused",
        f"{clock_time(117.5)}  stale: refused",
    ]


def test_a_line_of_another_day_has_its_date() -> None:
    console = Console(file=io.StringIO(), width=10_000, color_system=None, _environ={})
    output, history = EventLines(console), GroupHistory("flight-readers")
    late = datetime(2026, 3, 1, 23, 59, 59).astimezone().timestamp()
    with console.capture() as written:
        output.show(history.seen(ALONE, late))
        output.show(history.seen(SHARED, late + 3.0))
    times = [line.partition("  ")[0] for line in written.get().splitlines()]
    assert times == ["23:59:59", "2 Mar 00:00:02", "00:00:02", "00:00:02"]
    yesterday, today = (moment(each, late + 3.0) for each in (late, late + 3.0))
    assert (yesterday, today) == ("1 Mar 23:59:59", "00:00:02")


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


def test_a_group_that_is_never_readable_is_exit_code_1_with_the_reason() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    asked = ("watch", "g", "--bootstrap-server", address, "--timeout", "0.2", "--interval", "0.1")
    lines = invoke(*asked, "--count", "2")
    assert lines.exit_code == 1
    assert f"not readable: {address}" in lines.stdout
    assert lines.stdout.count("no data yet") == 1
    documents = invoke(*asked, "--duration", "0.1", "--json")
    assert documents.exit_code == 1
    (document,) = map(json.loads, documents.stdout.splitlines())
    assert (document["group"], document["partitions"]) == (None, [])
    assert address in document["stale"]["reason"]


@contextmanager
def watching(group_id: str, servers: str, *more: str, **streams: Any) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "spark_groups.cli.main", "watch", group_id]
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
        process.wait(LONG_S)


@pytest.mark.long
@pytest.mark.broker
def test_watch_the_page_and_kafkas_own_tool_have_the_same_numbers(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    with lagging_group(servers, topic_name, group_id, 7), serving(servers) as url:
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
def test_a_hand_over_is_shown_line_by_line_and_ctrl_c_is_a_clean_end(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    log, errors = tmp_path / "lines", tmp_path / "errors"
    with (
        assigned_group(servers, topic_name, group_id) as (first, start),
        log.open("wb") as out,
        errors.open("wb") as err,
        watching(group_id, servers, stdout=out, stderr=err) as process,
    ):
        wait_for(log, "members 1  partitions 2")
        second = start()
        run_until_assigned(second, 1, first)
        wait_for(log, " moved from query-like ")
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130
    text = log.read_text()
    assert f"{topic_name} " in text
    assert text.index(" joined from ") < text.index(" moved from ")
    assert errors.read_text() == ""


def wait_for(path: Path, words: str) -> str:
    wait_until(lambda: words in path.read_text(errors="replace"), what=f"{words!r} in {path}")
    return path.read_text()


@pytest.mark.long
@pytest.mark.broker
def test_a_terminal_is_left_as_it_was(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> None:
    servers = kafka.bootstrap_servers
    with assigned_group(servers, topic_name, group_id):
        ours, its = pty.openpty()
        with watching(group_id, servers, stdout=its, stderr=its) as process:
            os.close(its)
            written = read_until(ours, b"LAG CHANGE")
            process.send_signal(signal.SIGINT)
            written += read_until(ours, None)
            assert process.wait(LONG_S) == 130
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


BEFORE = view_group(
    read(member(ONE, [0, 1]), committed={0: 5, 1: 0}, starts={0: 0, 1: 0}, ends={0: 10, 1: 3})
)
AFTER = view_group(
    read(
        member(ONE, [0, 1], [0]),
        member(TWO, [], [1]),
        committed={0: 9, 1: 0},
        ends={0: 10, 1: 7},
        state="Reconciling",
    )
)


DONE = view_group(
    read(member(ONE, [0]), member(TWO, [1]), committed={0: 9, 1: 0}, ends={0: 10, 1: 7})
)


def frame_of(*views) -> Frame:
    history = GroupHistory("flight-readers")
    for at_s, view in enumerate(views):
        frame = history.seen(view, float(at_s))
    return frame


def shown(frame: Frame, height: int = 1_000, width: int = 160) -> list[str]:
    text = render_frame(frame, width=width, height=height, clock=lambda at_s: f"{at_s:.0f} s")
    return lines(text, width)


def test_members_partitions_trends_and_events_are_shown() -> None:
    text = "\n".join(shown(frame_of(BEFORE, AFTER)))
    assert "group flight-readers  Reconciling" in text
    assert "lag 0/s  committed +4.0/s  written +4.0/s  ██" in text
    # Partition 0 was read, and partition 1 only written to.
    first, second = (line for line in text.splitlines() if line.startswith("flights "))
    assert first.split()[-2:] == ["-4.0/s", "█▂"]
    assert second.split()[-2:] == ["+4.0/s", "▄█"]
    assert f"app-1 {ONE}  app-2 {TWO}" in second
    assert "1 s  app-2 22222222 joined from 127.0.0.1" in text
    assert "app-1 11111111 revoking flights 1: — of its rebalance timeout" in text


def timed(view: GroupView, time: LagTime) -> GroupView:
    partitions = tuple(replace(each, time=time) for each in view.partitions)
    return replace(view, partitions=partitions, totals=group_totals(view.members, partitions))


def test_lag_in_time_and_deletion_alerts_are_shown_in_few_lines() -> None:
    soon = LagTime(
        seconds_behind=600_000.0,
        first_unread_offset=3,
        deletion=Deletion.BY_AGE,
        retention_ms=604_800_000,
        deletion_in_s=4_800.0,
    )
    frame = frame_of(timed(BEFORE, soon), timed(AFTER, soon))
    text = shown(frame, width=200)
    # Lag, time and members come before epochs.
    assert text[1].startswith("total lag 8   behind 6 d 22 h   members 2   partitions 2")
    assert text[2].endswith("group epoch 7   assignment epoch 6")
    assert any("outlook: —" in line for line in text)
    assert any("RECORDS EXPIRE" in line for line in text)
    alerts = [line for line in text if line.startswith("flights-")]
    assert [line.partition(":")[0] for line in alerts] == ["flights-0", "flights-1"]
    assert "unread records may be deleted in 1 h 20 min" in alerts[0]
    (first, _) = (line for line in text if line.startswith("flights "))
    assert "6 d 22 h  in 1 h 20 min" in first
    assert "lag 8 (0/s)  behind 6 d 22 h  members 2" in summary_line(frame)
    many = timed(
        view_group(
            read(
                member(ONE, range(50)),
                partitions=50,
                committed=dict.fromkeys(range(50), 0),
                ends=dict.fromkeys(range(50), 9),
            )
        ),
        soon,
    )
    text = shown(frame_of(many), height=24)
    assert "and 47 more partitions with an alert" in text
    assert len(text) <= 24


def test_the_latest_event_comes_first() -> None:
    text = shown(frame_of(BEFORE, AFTER))
    lines_at = [line for line in text if line.startswith("1 s")]
    assert lines_at[-1].endswith("group Stable → Reconciling")
    assert lines_at[0].endswith("must revoke flights 1")


def test_the_events_of_a_move_are_one_line_when_the_group_is_settled_again() -> None:
    under_way, over = frame_of(BEFORE, AFTER), frame_of(BEFORE, AFTER, DONE)
    assert sum(line.startswith("1 s") for line in shown(under_way)) == len(under_way.events)
    told = [line for line in shown(over) if re.match(r"\d s  ", line)]
    assert told == [
        "1 s  app-2 22222222 joined from 127.0.0.1; flights 1 moved from app-1 11111111 to app-2"
        f" 22222222 in 1.0 s ({len(over.events)} events)"
    ]


def test_the_budget_of_a_revocation_is_shown() -> None:
    text = "\n".join(shown(frame_of(revoking_group(3.0))))
    assert "app-1 11111111 revoking flights 1: 3.0 of 20 s (15%)" in text


def test_a_stale_frame_begins_with_its_age_and_keeps_the_numbers() -> None:
    history = GroupHistory("flight-readers")
    history.seen(BEFORE, 1.0)
    frame = history.failed("b:9092: connection refused\x1b[2J", 4.0)
    text = shown(frame)
    assert text[:2] == [" STALE since 4 s, last read 1 s", "b:9092: connection refused?[2J"]
    assert any("total lag 8" in line for line in text)
    assert summary_line(frame) == "stale: b:9092: connection refused?[2J"


def test_before_the_first_good_look_the_reason_is_shown() -> None:
    frame = GroupHistory("flight-readers").failed("there is no group 'flight-readers'", 1.0)
    text = shown(frame)
    assert text[0] == " STALE since 1 s, never read"
    assert "no data yet for group flight-readers" in text
    assert summary_line(frame) == "no data yet: there is no group 'flight-readers'"


def test_a_group_without_members_partitions_or_offsets_shows_a_sentence() -> None:
    text = "\n".join(shown(frame_of(view_group(read(partitions=0, state="Empty")))))
    assert "no partitions: no assignment and no committed offsets" in text


def many(moving: bool) -> Frame:
    """A group of 200 members and 1,000 partitions, one of which is perhaps on its way."""
    ids = [f"{each:08}-0000-4000-8000-000000000000" for each in range(200)]
    members = [member(each, range(n * 5, n * 5 + 5)) for n, each in enumerate(ids)]
    if moving:
        members[150] = member(ids[150], range(750, 755), range(750, 754))
        members[3] = member(ids[3], range(15, 20), [*range(15, 20), 754])
    lags = dict.fromkeys(range(1_000), 7)
    view = view_group(
        read(*members, partitions=1_000, committed=dict.fromkeys(range(1_000), 0), ends=lags)
    )
    return frame_of(view, view)


@pytest.mark.parametrize("height", [24, 50, 100])
@pytest.mark.parametrize("width", [80, 200])
def test_a_large_group_fits_into_a_terminal(height: int, width: int) -> None:
    text = shown(many(moving=True), height, width)
    # A narrow terminal breaks the header's lines.
    assert len(text) <= height + (3 if width < 100 else 0)
    assert any(line.startswith("and ") and line.endswith(" more members") for line in text)
    assert any(line.startswith("and ") and line.endswith(" more partitions") for line in text)


def test_what_moves_comes_first() -> None:
    text = shown(many(moving=True), 40, 200)
    rows = [line for line in text if line.startswith("flights ")]
    assert rows[0].startswith("flights 754 ")
    heads = next(index for index, line in enumerate(text) if line.startswith("MEMBER"))
    assert "754" in text[heads + 1]
    assert "754" in text[heads + 2]


def test_partitions_that_share_a_row_are_summed_or_unknown() -> None:
    text = shown(many(moving=False), 40, 200)
    row = next(line for line in text if line.startswith("flights 0-4 "))
    assert row.split()[-4:] == ["5", "35", "0/s", "██"]
    unknown = view_group(read(member(ONE, range(50)), partitions=50, committed={0: 0}, ends={0: 9}))
    row = next(
        each for each in shown(frame_of(unknown), 20, 200) if each.startswith("flights 0-49")
    )
    assert row.split()[-4:] == ["9", "(49", "unknown)", "—"]


def test_where_there_is_room_everything_is_shown() -> None:
    view = view_group(read(member(ONE, range(100)), partitions=100))
    text = shown(frame_of(view), width=200)
    assert sum(line.startswith("flights ") for line in text) == 100
    assert not any(line.startswith("and ") for line in text)


def test_each_part_has_some_lines_however_small_the_terminal_is() -> None:
    rows = divide(5, many(moving=True))
    assert (rows.members, rows.partitions, rows.events) == (2, 3, 3)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "—"),
        (0.0, "0/s"),
        (12.34, "+12.3/s"),
        (-0.5, "-0.5/s"),
        (-12_345.6, "-12,346/s"),
    ],
)
def test_rates_have_a_sign_and_the_unknown_is_a_dash(rate: float | None, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], ""),
        ([0, 0], "▁▁"),
        ([0, 4, 8], "▁▅█"),
        ([8, None, 8], "█ █"),
        (list(range(100)), sparkline(list(range(88, 100)))),
    ],
)
def test_bars_are_as_high_as_numbers(values: list[int | None], bars: str) -> None:
    assert sparkline(values) == bars


def test_a_summary_is_one_line_of_figures() -> None:
    assert summary_line(frame_of(BEFORE, AFTER)) == (
        "Reconciling  lag 8 (0/s)  members 2  partitions 2 (moving 1)  group epoch 7"
    )
    unknown = replace(BEFORE, group_epoch=None)
    assert "group epoch —" in summary_line(frame_of(unknown))
    assert "lag 8 (—)" in summary_line(frame_of(unknown))
