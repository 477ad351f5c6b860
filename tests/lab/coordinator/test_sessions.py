"""How long members may be silent and may take to revoke, also after a fail-over."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator import sessions
from spark_groups.lab.coordinator.effects import Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.settings import Settings
from tests.lab.coordinator.driving import Driven, foo, two_members

SESSION = TimerKey(TimerKind.SESSION, "g", "m1")
REBALANCE = TimerKey(TimerKind.REBALANCE, "g", "m1")


@pytest.fixture
def driven() -> Driven:
    return two_members()


def test_who_is_silent_for_too_long_is_removed(driven: Driven) -> None:
    driven.fire(TimerKind.SESSION, "m1")
    assert list(driven.group.members) == ["m2"]
    assert driven.group.group_epoch == 4
    assert REBALANCE not in driven.timers
    assert driven.beat("m2").assignment == foo(0, 1, 2, 3, 4, 5)


def test_who_takes_too_long_to_revoke_is_removed(driven: Driven) -> None:
    driven.fire(TimerKind.REBALANCE, "m1")
    assert list(driven.group.members) == ["m2"]
    assert SESSION not in driven.timers


def test_a_rebalance_timer_of_an_epoch_that_the_member_left_does_nothing(driven: Driven) -> None:
    timer = driven.timers[REBALANCE]
    driven.beat("m1", topic_partitions=foo(0, 1, 2))
    outcome = sessions.fired(driven.group, timer, driven.profile, driven.around)
    assert (outcome.records, outcome.timers) == ((), ())


@pytest.mark.parametrize("key", [SESSION, REBALANCE])
def test_a_timer_of_a_member_that_is_gone_does_nothing(key: TimerKey) -> None:
    driven = Driven()
    outcome = sessions.fired(driven.group, Timer(key, 1.0, 2), driven.profile, driven.around)
    assert (outcome.records, outcome.timers) == ((), ())


def test_a_group_may_have_a_session_time_out_of_its_own(driven: Driven) -> None:
    driven.settings = Settings(by_group={"g": {"consumer.session.timeout.ms": "50000"}})
    driven.beat("m1")
    assert driven.timers[SESSION].at == driven.now + 50.0


def test_after_a_fail_over_everybody_has_all_the_time_again(driven: Driven) -> None:
    driven.now += 20
    outcome = sessions.loaded(driven.group, driven.profile, driven.around)
    assert outcome.records == ()
    assert {each.key: (each.at, each.member_epoch) for each in outcome.timers} == {
        SESSION: (driven.now + 45.0, -1),
        REBALANCE: (driven.now + 30.0, 2),
        TimerKey(TimerKind.SESSION, "g", "m2"): (driven.now + 45.0, -1),
    }
