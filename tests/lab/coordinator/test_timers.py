"""Timers by key, the earliest first."""

from __future__ import annotations

from spark_groups.lab.coordinator.effects import Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.timers import Timers


def timer(member_id: str, at: float | None) -> Timer:
    return Timer(TimerKey(TimerKind.SESSION, "g", member_id), at)


def fired(timers: Timers, now: float) -> list[str]:
    members = []
    while due := timers.pop_due(now):
        members.append(due.key.member_id)
    return members


def test_due_timers_fire_in_order_and_those_of_one_instant_as_they_were_set() -> None:
    timers = Timers()
    for each in (timer("b", 2.0), timer("a", 1.0), timer("d", 3.0), timer("c", 2.0)):
        timers.put(each)
    assert timers.next_at() == 1.0
    assert fired(timers, 2.0) == ["a", "b", "c"]
    assert timers.next_at() == 3.0
    assert timers.get(timer("a", 0.0).key) is None


def test_a_timer_that_is_set_anew_fires_once_and_one_that_is_stopped_never() -> None:
    timers = Timers()
    timers.put(timer("a", 1.0))
    timers.put(timer("b", 1.0))
    timers.put(timer("a", 5.0))
    timers.put(timer("b", None))
    assert fired(timers, 4.0) == []
    assert timers.next_at() == 5.0
    assert timers.get(timer("a", 0.0).key) == timer("a", 5.0)
    assert fired(timers, 5.0) == ["a"]
    assert timers.next_at() is None
