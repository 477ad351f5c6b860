"""When bytes arrive on a slow link, and what a condition lets pass."""

from __future__ import annotations

import random

import pytest

from workshop.chaos.faults.link import WORKING, Condition, Passage, Slowness, Timetable, Way

SLOWNESS = Slowness(latency_s=0.5, jitter_s=2.0, bytes_per_s=1000.0)
NO_JITTER = Slowness(latency_s=0.5, jitter_s=0.0, bytes_per_s=1000.0)


def timetable() -> Timetable:
    return Timetable(random.Random(7))


def test_bytes_of_a_link_that_works_arrive_at_once_but_after_those_before_them() -> None:
    assert timetable().due_s(10.0, 5000, None, 0.0) == 10.0
    assert timetable().due_s(10.0, 5000, None, 11.0) == 11.0


def test_bytes_of_all_connections_share_the_bandwidth() -> None:
    table = timetable()
    assert table.due_s(10.0, 1000, NO_JITTER, 0.0) == 11.5
    assert table.due_s(10.0, 1000, NO_JITTER, 0.0) == 12.5
    assert table.due_s(20.0, 1000, NO_JITTER, 0.0) == 21.5, "the link was free again"


def test_one_connection_keeps_its_order_and_different_ones_overtake_each_other() -> None:
    table = timetable()
    due_s = [0.0]
    for _ in range(50):
        due_s.append(table.due_s(10.0, 1, SLOWNESS, due_s[-1]))
    assert due_s == sorted(due_s)
    others = [table.due_s(10.0, 1, SLOWNESS, 0.0) for _ in range(50)]
    assert others != sorted(others)
    assert all(10.5 <= other <= 12.7 for other in others)


@pytest.mark.parametrize(
    ("condition", "resets", "connects"),
    [
        (WORKING, False, True),
        (Condition(Passage.SLOW, Passage.SLOW, SLOWNESS), False, True),
        (Condition(Passage.HELD, Passage.OPEN), False, False),
        (Condition(Passage.OPEN, Passage.HELD), False, False),
        (Condition(Passage.RESET, Passage.RESET), True, False),
    ],
)
def test_connection_comes_about_if_both_ways_are_there(
    condition: Condition, resets: bool, connects: bool
) -> None:
    assert (condition.resets, condition.connects) == (resets, connects)
    assert condition.passage(Way.TO_BROKER) is condition.to_broker
    assert condition.passage(Way.FROM_BROKER) is condition.from_broker
