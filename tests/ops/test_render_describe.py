"""A group in the columns of Kafka's own tool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.observation.reading import GroupType
from spark_groups.observation.views import view_group
from spark_groups.ops.render_describe import render_members, render_offsets, render_state
from tests.observation.groups import ONE, TWO, member, read
from tests.ops.rendered import cells, lines

READING = read(
    member(ONE, [0, 2], [0], instance_id="gate-1"),
    member(TWO, [], [2]),
    partitions=4,
    committed={0: 1_000},
    starts={0: 0, 1: 0},
    ends={0: 1_234, 1: 5},
    state="Reconciling",
)
VIEW = view_group(READING)
CLASSIC = view_group(replace(READING, group_type=GroupType.CLASSIC))


def test_members_are_shown_as_kafkas_tool_shows_them() -> None:
    group = "flight-readers"
    assert cells(render_members(VIEW)) == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        [group, ONE, "gate-1", "127.0.0.1", "app-1", "2"],
        [group, TWO, "—", "127.0.0.1", "app-2", "0"],
    ]
    header, first, second = cells(render_members(VIEW, verbose=True))
    assert header[5:] == [
        *("RACK", "#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT"),
        *("TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ]
    assert first[5:] == ["—", "2", "7", "flights:0,2", "6", "flights:0"]
    assert second[5:] == ["—", "0", "7", "6", "flights:2"]


def test_offsets_are_shown_as_kafkas_tool_shows_them() -> None:
    rows = cells(render_offsets(VIEW, verbose=True))
    assert rows[0] == [
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    owned = ["127.0.0.1", "app-1"]
    assert rows[1][1:] == ["flights", "0", "—", "1000", "1234", "234", ONE, *owned]
    # Nothing is committed: it lags for us, from the log start, but not in these columns.
    assert rows[2][1:] == ["flights", "1", "—", "—", "5", "—", "—", "—", "—"]
    assert rows[3][1:] == ["flights", "2", "—", "—", "—", "—", ONE, *owned]
    assert "LEADER-EPOCH" not in cells(render_offsets(VIEW))[0]


def test_the_state_is_one_row() -> None:
    coordinator = "127.0.0.1:9092 (id 1)"
    assert cells(render_state(VIEW)) == [
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["flight-readers", coordinator, "uniform", "Reconciling", "2"],
    ]
    assert cells(render_state(VIEW, verbose=True))[1][3:] == ["Reconciling", "7", "6", "2"]


def test_a_classic_group_has_no_epochs() -> None:
    assert cells(render_state(CLASSIC, verbose=True))[1][3:] == ["Reconciling", "—", "—", "2"]
    assert cells(render_members(CLASSIC, verbose=True))[1][7:10] == ["—", "flights:0,2", "—"]


@pytest.mark.parametrize("render", [render_members, render_offsets, render_state])
def test_a_group_without_members_says_so(render) -> None:
    empty = view_group(read(committed={0: 3}, ends={0: 5}, state="Empty"))
    first, *rest = lines(render(empty))
    assert first == "Consumer group 'flight-readers' has no active members."
    assert len(rest) == (0 if render is render_members else 2)


def test_many_members_and_partitions_have_a_row_each() -> None:
    members = [member(f"{each:036}", range(each * 5, each * 5 + 5)) for each in range(200)]
    view = view_group(read(*members, partitions=1_000, committed=dict.fromkeys(range(1_000), 1)))
    assert len(lines(render_members(view, verbose=True))) == 201
    assert len(lines(render_offsets(view))) == 1_001
