"""Heartbeats of the 0.9 design, failure detection and slow consumers."""

from __future__ import annotations

from group_lab.coordinator.design_0_9.group import CoordinatorState
from group_lab.coordinator.design_0_9.messages import DesignErrorCode, DesignHeartbeatResponse
from lab.tests.coordinator.design_0_9.driving import SESSION_S, DrivenDesign, joined, owned

PREPARE = CoordinatorState.PREPARE_FOR_REBALANCE
NONE, ILLEGAL = DesignErrorCode.NONE, DesignErrorCode.ILLEGAL_GENERATION


def with_a_slow_consumer(count: int = 3) -> tuple[DrivenDesign, list[str]]:
    """Return a group, the last consumer of which was just marked dead, and its ids."""
    driven = DrivenDesign()
    ids = driven.steady(count)
    driven.wait(SESSION_S - 1)
    for each in ids[:-1]:
        assert driven.beat(each) == NONE
    driven.wait(1)
    return driven, ids


def test_a_heartbeat_needs_an_id_and_the_generation_of_the_group() -> None:
    driven = DrivenDesign()
    first, _ = driven.steady(2)
    assert driven.beat(first, 2) == NONE
    assert driven.beat(first, 1) == driven.beat(first, 3) == ILLEGAL
    assert driven.beat("other", 2) == DesignErrorCode.UNKNOWN_CONSUMER
    assert driven.state is CoordinatorState.STEADY


def test_heartbeats_keep_a_consumer_alive_and_stale_ones_do_not() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    for _ in range(5):
        driven.wait(SESSION_S - 1)
        assert driven.beat(first) == NONE
        assert driven.beat(second) == NONE
    driven.wait(SESSION_S - 1)
    driven.beat(first, 1)
    driven.beat(second)
    driven.wait(1)
    assert driven.group.dead == {first}


def test_each_consumer_has_its_own_session_timeout() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    long, short = driven.join(session_s=30.0), driven.join(first)
    driven.wait(SESSION_S)
    assert driven.group.dead == {joined(short).consumer_id}
    assert driven.beat(joined(long).consumer_id) == ILLEGAL


def test_the_rest_of_the_group_learns_that_a_consumer_is_dead() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    assert driven.state is PREPARE
    assert driven.beat(first) == ILLEGAL
    joins = driven.join(first), driven.join(second)
    assert sorted(owned(joins[0]) + owned(joins[1])) == list(range(6))
    assert driven.group.generation_id == 4
    assert driven.beat(slow) == DesignErrorCode.UNKNOWN_CONSUMER


def test_a_slow_consumer_that_is_first_cancels_the_rebalance() -> None:
    driven, ids = with_a_slow_consumer()
    assert driven.beat(ids[2]) == NONE
    assert driven.state is CoordinatorState.STEADY
    driven.wait(SESSION_S - 1)
    assert [driven.beat(each) for each in ids] == [NONE] * 3


def test_a_slow_consumer_cancels_nothing_once_another_has_learned_of_it() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    driven.beat(first)
    assert driven.beat(slow) == ILLEGAL
    assert driven.state is PREPARE
    # It may join again, but the group does not wait for it.
    included = driven.join(slow)
    driven.join(first)
    assert included.response is None
    driven.join(second)
    assert joined(included).consumer_id == slow
    assert len(driven.group.consumers) == 3


def test_one_of_two_slow_consumers_cancels_nothing() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    joins = driven.join(session_s=30.0), driven.join(first), driven.join(second)
    third = joined(joins[0]).consumer_id
    driven.wait(SESSION_S)
    dead = set(driven.group.dead)
    # The other one has a session timeout to join from then on.
    driven.wait(SESSION_S)
    assert len(dead) == 1
    assert driven.group.dead == {first, second}
    assert driven.beat(first) == ILLEGAL
    assert driven.beat(third) == ILLEGAL


def test_a_slow_consumer_cancels_nothing_if_topics_have_changed_or_another_has_joined() -> None:
    driven, (_, _, slow) = with_a_slow_consumer()
    driven.grow("foo", 7)
    assert driven.beat(slow) == ILLEGAL
    driven, (_, _, slow) = with_a_slow_consumer()
    driven.join()
    assert driven.beat(slow) == ILLEGAL


def test_a_slow_consumer_cancels_nothing_if_the_round_began_with_a_join() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.replicates = False
    second = driven.join(session_s=3 * SESSION_S)
    driven.join(first)
    # It joins while the generation of the others is written, so it begins the next round.
    third = driven.join()
    driven.replicates = True
    driven.replicate()
    assert driven.state is PREPARE
    driven.wait(SESSION_S)
    assert driven.group.dead == {first}
    assert driven.beat(first) == ILLEGAL
    driven.join(joined(second).consumer_id)
    assert joined(third).group_generation_id == 3


def test_a_stale_heartbeat_does_not_count_for_the_next_round() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    assert driven.beat(first, 1) == ILLEGAL
    driven.wait(SESSION_S - 1)
    assert driven.beat(first) == NONE
    driven.wait(1)
    assert driven.group.dead == {second}
    assert driven.beat(second) == NONE
    assert driven.state is CoordinatorState.STEADY


def test_a_slow_consumer_that_joins_after_the_decision_gets_another_round_right_after() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    driven.beat(first)
    joins = [driven.join(first)]
    driven.replicates = False
    joins.append(driven.join(second))
    assert driven.state is CoordinatorState.REBALANCING
    late = driven.join(slow)
    heartbeat = driven.send(driven.beat_request(slow, 3))
    driven.replicate()
    assert heartbeat.response == DesignHeartbeatResponse(error_code=ILLEGAL)
    driven.replicates = True
    assert all(joined(each).group_generation_id == 4 for each in joins)
    assert late.response is None
    assert driven.state is PREPARE
    assert [driven.beat(each) for each in (first, second)] == [ILLEGAL] * 2
    driven.join(first)
    driven.join(second)
    assert (joined(late).consumer_id, joined(late).group_generation_id) == (slow, 5)


def test_a_slow_consumer_that_sends_its_join_again_is_known_in_that_round() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    driven.join(first)
    driven.replicates = False
    driven.join(second)
    driven.join(slow)
    driven.replicate()
    driven.replicates = True
    assert driven.join(slow).response is None
    driven.join(first)
    driven.replicates = False
    driven.join(second)
    again = driven.join(slow)
    driven.replicate()
    assert joined(again).consumer_id == slow


def test_a_slow_consumer_that_joins_after_the_round_is_unknown() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    driven.join(first)
    driven.join(second)
    assert joined(driven.join(slow)).error_code == DesignErrorCode.UNKNOWN_CONSUMER
    assert driven.state is CoordinatorState.STEADY


def test_a_lone_consumer_that_dies_leaves_an_empty_generation() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.wait(SESSION_S)
    assert driven.state is CoordinatorState.READY
    assert driven.group.generation_id == 2
    assert driven.beat(first) == DesignErrorCode.UNKNOWN_CONSUMER


def test_a_consumer_that_waits_for_its_response_is_not_marked_dead() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    waiting = driven.join(session_s=2.0)
    driven.wait(SESSION_S - 1)
    assert waiting.response is None
    driven.join(first)
    assert joined(waiting).error_code == NONE
    # Its session begins with the response.
    driven.wait(1.5)
    assert driven.beat(joined(waiting).consumer_id) == NONE


def test_a_consumer_is_not_marked_dead_while_its_generation_is_written() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.wait(SESSION_S - 1)
    driven.replicates = False
    driven.join(first)
    driven.wait(SESSION_S)
    assert (driven.state, driven.group.dead) == (CoordinatorState.REBALANCING, set())


def test_a_consumer_that_pauses_before_its_join_is_marked_dead_during_the_rebalance() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    new = driven.join()
    driven.join(first)
    # Heartbeats do not replace its join.
    driven.wait(SESSION_S - 1)
    assert driven.beat(second) == ILLEGAL
    driven.wait(1)
    assert joined(new).group_generation_id == 3
    assert set(driven.group.consumers) == {first, joined(new).consumer_id}


def test_a_consumer_marked_dead_commits_until_the_round_is_complete() -> None:
    driven, (first, second, slow) = with_a_slow_consumer()
    driven.beat(first)
    assert driven.commit(slow) == NONE
    driven.join(first)
    driven.join(second)
    assert driven.commit(slow, 3) == DesignErrorCode.UNKNOWN_CONSUMER
