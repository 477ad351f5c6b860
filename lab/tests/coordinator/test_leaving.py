"""Members that go: they leave, are silent or slow; the epoch grows, the target waits."""

from __future__ import annotations

import pytest

from group_lab.coordinator import leaving
from group_lab.coordinator.effects import Timer, TimerKey, TimerKind
from group_lab.coordinator.group import GroupState
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_3, KAFKA_4_4, KIP_848, Profile
from group_lab.coordinator.settings import Settings
from lab.tests.coordinator.driving import JOIN, Driven, foo, given_at, record_types, two_members
from spark_groups.errors import ErrorCode


@pytest.fixture
def pair() -> Driven:
    return two_members()


def test_a_leave_stops_the_timers_and_bumps_the_epoch(pair: Driven) -> None:
    outcome = pair.decide("m1", -1)
    answer = outcome.response
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", -1)
    assert (answer.heartbeat_interval_ms, answer.assignment) == (0, None)
    assert record_types(outcome) == [-8, -7, -5, 3]
    assert pair.timers.keys() == {TimerKey(TimerKind.SESSION, "g", "m2")}
    assert (pair.group.group_epoch, pair.group.assignment_epoch) == (4, 3)
    assert pair.group.state is GroupState.ASSIGNING
    assert pair.beat("m2").assignment == foo(0, 1, 2, 3, 4, 5)


def test_several_members_leave_with_one_new_epoch(pair: Driven) -> None:
    outcome = pair.fence("m1", "m2")
    assert record_types(outcome) == [-8, -7, -5, -8, -7, -5, 3]
    assert (pair.group.group_epoch, pair.group.state) == (4, GroupState.EMPTY)


def test_fencing_no_member_changes_nothing() -> None:
    driven = Driven()
    driven.join("m1", "foo")
    assert driven.fence().records == ()


@pytest.mark.parametrize(
    ("profile", "types", "epochs"),
    [
        (KAFKA_4_0, [-8, -7, -5, 4, 3], (2, 1)),
        (KAFKA_4_3, [-8, -7, -5, 3], (3, 2)),
        (KAFKA_4_4, [-8, -7, -5, 3, 6], (3, 3)),
    ],
)
def test_the_last_member_leaves(
    profile: Profile, types: list[int], epochs: tuple[int, int]
) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo")
    assert record_types(driven.decide("m1", -1)) == types
    assert (driven.group.group_epoch, driven.group.assignment_epoch) == epochs
    assert driven.group.state is GroupState.EMPTY


def test_a_pattern_goes_with_its_last_subscriber() -> None:
    driven = Driven()
    for member_id in ("m1", "m2"):
        driven.send(member_id, 0, **JOIN, subscribed_topic_regex="fo.*")
    assert record_types(driven.decide("m1", -1)) == [-8, -7, -5, 3]
    assert record_types(driven.decide("m2", -1)) == [-8, -7, -5, -16, 3]


def test_under_the_kip_the_target_follows_at_once() -> None:
    driven = Driven(KIP_848)
    driven.join("m1", "foo")
    driven.join("m2", "foo")
    driven.decide("m1", -1)
    assert driven.timers[TimerKey(TimerKind.ASSIGNMENT, "g")].at == driven.now


class TestStatic:
    def test_an_absent_static_member_keeps_its_assignment_and_revokes_nothing(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        driven.join("m2", "foo")
        driven.beat("m1", instance_id="i1")
        before = driven.member("m1")
        assert before.state is ReconciliationState.UNREVOKED_PARTITIONS
        outcome = driven.decide("m1", -2, instance_id="i1")
        assert record_types(outcome) == [8]
        assert outcome.timers == ()
        away = driven.member("m1")
        assert away.is_away
        assert away.assigned == given_at({foo(0, 1, 2): 0})
        assert away.pending_revocation == {}
        assert (away.state, away.previous_member_epoch) == (
            before.state,
            before.previous_member_epoch,
        )
        # What it had to revoke is free.
        assert driven.beat("m2").assignment == foo(3, 4, 5)

    def test_minus_1_frees_the_instance_id(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        driven.send("m1", -1, instance_id="i1")
        assert driven.join("m2", "foo", instance_id="i1").assignment == foo(0, 1, 2, 3, 4, 5)

    @pytest.mark.parametrize("member_epoch", [-1, -2])
    def test_only_the_holder_leaves(self, member_epoch: int) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        other = driven.send("m2", member_epoch, instance_id="i1")
        assert other.error_code == ErrorCode.FENCED_INSTANCE_ID
        unknown = driven.send("m1", member_epoch, instance_id="i2")
        assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert not driven.member("m1").is_away


SESSION = TimerKey(TimerKind.SESSION, "g", "m1")
REBALANCE = TimerKey(TimerKind.REBALANCE, "g", "m1")


@pytest.fixture
def driven() -> Driven:
    return two_members()


def test_a_member_is_removed_after_its_session_timeout(driven: Driven) -> None:
    driven.fire(TimerKind.SESSION, "m1")
    assert list(driven.group.members) == ["m2"]
    assert driven.group.group_epoch == 4
    assert REBALANCE not in driven.timers
    assert driven.beat("m2").assignment == foo(0, 1, 2, 3, 4, 5)


def test_a_member_is_removed_after_its_rebalance_timeout(driven: Driven) -> None:
    driven.fire(TimerKind.REBALANCE, "m1")
    assert list(driven.group.members) == ["m2"]
    assert SESSION not in driven.timers


def test_a_rebalance_timer_of_an_epoch_that_the_member_left_does_nothing(driven: Driven) -> None:
    timer = driven.timers[REBALANCE]
    driven.beat("m1", topic_partitions=foo(0, 1, 2))
    outcome = leaving.timed_out(driven.group, timer, driven.profile, driven.context)
    assert (outcome.records, outcome.timers) == ((), ())


@pytest.mark.parametrize("key", [SESSION, REBALANCE])
def test_a_timer_of_a_former_member_does_nothing(key: TimerKey) -> None:
    driven = Driven()
    outcome = leaving.timed_out(driven.group, Timer(key, 1.0, 2), driven.profile, driven.context)
    assert (outcome.records, outcome.timers) == ((), ())


def test_a_group_may_have_its_own_session_timeout(driven: Driven) -> None:
    driven.settings = Settings(by_group={"g": {"consumer.session.timeout.ms": "50000"}})
    driven.beat("m1")
    assert driven.timers[SESSION].at == driven.now + 50.0


def test_after_a_failover_all_timeouts_start_again(driven: Driven) -> None:
    driven.now += 20
    outcome = leaving.timers_once_loaded(driven.group, driven.profile, driven.context)
    assert outcome.records == ()
    assert {each.key: (each.at, each.member_epoch) for each in outcome.timers} == {
        SESSION: (driven.now + 45.0, -1),
        REBALANCE: (driven.now + 30.0, 2),
        TimerKey(TimerKind.SESSION, "g", "m2"): (driven.now + 45.0, -1),
    }
