"""A frame as text: what is said, what has room, and what comes first where there is little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.observation.frames import Frame, GroupHistory
from spark_groups.observation.views import view_group
from spark_groups.ops.render_frame import (
    divide,
    rate_text,
    render_frame,
    sparkline,
    summary_line,
)
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.test_revocations import told
from tests.ops.rendered import lines

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
    assert "app-1 11111111 gives up flights 1: — of its time used" in text


def test_the_latest_event_comes_first() -> None:
    text = shown(frame_of(BEFORE, AFTER))
    told_at = [line for line in text if line.startswith("1 s")]
    assert told_at[-1].endswith("group Stable → Reconciling")
    assert told_at[0].endswith("is to give up flights 1")


def test_the_budget_of_a_revocation_is_shown() -> None:
    text = "\n".join(shown(frame_of(told(3.0))))
    assert "app-1 11111111 gives up flights 1: 3.0 of 20 s used (15%)" in text


def test_a_stale_frame_says_so_first_and_keeps_the_numbers() -> None:
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
    assert "nothing is known yet of group flight-readers" in text
    assert summary_line(frame) == "nothing is known yet: there is no group 'flight-readers'"


def test_a_group_with_nothing_says_so() -> None:
    text = "\n".join(shown(frame_of(view_group(read(partitions=0, state="Empty")))))
    assert "no partitions: nothing is assigned, and nothing is committed" in text


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
        "Reconciling  group epoch 7  members 2  partitions 2 (moving 1)  lag 8 (0/s)"
    )
    unknown = replace(BEFORE, group_epoch=None)
    assert "group epoch —" in summary_line(frame_of(unknown))
    assert "lag 8 (—)" in summary_line(frame_of(unknown))
