"""Rebalances of the 0.9 design: topics, lost records, and coordinators that fail in each phase."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.coordinator.design_0_9.group import CoordinatorState
from group_lab.coordinator.design_0_9.messages import LOADING_ERRORS, DesignErrorCode
from group_lab.coordinator.shard import Ticket
from group_lab.coordinator.topic_images import TopicImage
from lab.tests.coordinator.design_0_9.driving import (
    SESSION_S,
    DrivenDesign,
    joined,
    owned,
    partitions,
)
from lab.tests.coordinator.driving import FOO, TOPICS
from spark_groups.group.member.messages import OffsetCommitResponse

PREPARE, STEADY = CoordinatorState.PREPARE_FOR_REBALANCE, CoordinatorState.STEADY
NONE, ILLEGAL = DesignErrorCode.NONE, DesignErrorCode.ILLEGAL_GENERATION
LOST = DesignErrorCode.COORDINATOR_NOT_AVAILABLE


def error_of(ticket: Ticket) -> int:
    """Return the error code of an answer."""
    response: Any = ticket.response
    return int(response.error_code)


def test_more_partitions_begin_a_rebalance_and_a_generation_with_the_same_consumers() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.grow("bar", 9)
    assert driven.state is STEADY
    driven.grow("foo", 8)
    assert [driven.beat(each) for each in (first, second)] == [ILLEGAL] * 2
    joins = driven.join(first), driven.join(second)
    assert [owned(each) for each in joins] in (
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[4, 5, 6, 7], [0, 1, 2, 3]],
    )
    assert {joined(each).group_generation_id for each in joins} == {3}


def test_a_topic_may_be_subscribed_before_it_is_created() -> None:
    driven = DrivenDesign(topics=TOPICS.without("bar"))
    response = joined(driven.join("", "bar"))
    assert response.partitions_to_own == frozenset()
    driven.grow("bar", 2)
    assert driven.beat(response.consumer_id) == ILLEGAL
    again = driven.join(response.consumer_id, "bar")
    assert joined(again).partitions_to_own == partitions("bar", 0, 1)


def test_partitions_that_come_while_a_generation_is_written_need_another_round() -> None:
    driven = DrivenDesign()
    driven.replicates = False
    first = driven.join()
    driven.grow("foo", 7)
    driven.replicate()
    assert owned(first) == list(range(6))
    assert driven.state is PREPARE


def test_partitions_that_come_before_the_decision_need_no_other_round() -> None:
    driven = DrivenDesign()
    (known,) = driven.steady(1)
    new = driven.join()
    driven.grow("foo", 7)
    assert sorted(owned(driven.join(known)) + owned(new)) == list(range(7))
    assert driven.state is STEADY


def test_the_first_generation_may_be_lost() -> None:
    driven = DrivenDesign()
    driven.replicates = False
    first, late = driven.join(), driven.join()
    driven.fail()
    assert error_of(first) == error_of(late) == LOST
    assert driven.state is CoordinatorState.READY
    again = driven.join()
    driven.replicate()
    assert joined(again).group_generation_id == 1


def test_a_lost_generation_lets_the_former_one_rebalance() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    new, known = driven.join(), driven.join(first)
    driven.replicates = False
    last = driven.join(second)
    driven.fail()
    assert [error_of(each) for each in (new, known, last)] == [LOST] * 3
    assert len(driven.answered) == len({id(each) for each in driven.answered})
    assert (driven.state, driven.group.generation_id) == (PREPARE, 2)
    driven.replicates = True
    assert driven.beat(first) == ILLEGAL
    known = driven.join(first)
    # The coordinator still detects that the other one does not come back.
    driven.wait(SESSION_S)
    assert owned(known) == list(range(6))
    assert joined(known).group_generation_id == 3
    assert driven.beat(second) == DesignErrorCode.UNKNOWN_CONSUMER


def test_a_join_behind_a_lost_commit_is_refused_and_does_not_count() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.replicates = False
    commit = driven.send(driven.commit_request(first, 2))
    refused = driven.join(first)
    driven.fail()
    assert isinstance(commit.response, OffsetCommitResponse)
    assert set(commit.response.errors.values()) == {LOST}
    assert error_of(refused) == LOST
    driven.replicates = True
    last = driven.join(second)
    assert last.response is None
    driven.wait(SESSION_S)
    assert set(driven.group.consumers) == {second}
    assert owned(last) == list(range(6))


@pytest.mark.parametrize("recovers", [True, False])
def test_a_lost_empty_generation_is_written_again_unless_the_consumer_recovers(
    *, recovers: bool
) -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.replicates = False
    driven.wait(SESSION_S)
    driven.fail()
    assert (driven.state, driven.group.dead) == (PREPARE, {first})
    driven.replicates = True
    if not recovers:
        driven.wait(1)
        assert (driven.state, driven.group.generation_id) == (CoordinatorState.READY, 2)
        return
    # Its record is in force, and no other consumer has learned of the round.
    assert driven.beat(first) == NONE
    assert driven.state is STEADY


def test_a_record_that_is_too_large_refuses_the_joins() -> None:
    driven = DrivenDesign()
    refused = driven.join("", *(f"topic-{each:060}" for each in range(16_000)))
    assert error_of(refused) == -1
    assert driven.state is CoordinatorState.READY


def test_a_coordinator_fails_in_phase_1_and_the_next_one_compares_the_topics() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.fail_over()
    assert driven.state is STEADY
    driven.topics = TOPICS.with_topic(TopicImage(FOO, "foo", 7))
    driven.fail_over()
    assert driven.state is PREPARE
    assert driven.beat(first) == ILLEGAL
    assert owned(driven.join(first)) == list(range(7))


def test_a_coordinator_fails_in_phase_2_and_a_consumer_that_recovers_prevents_the_rebalance() -> (
    None
):
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.wait(SESSION_S - 1)
    driven.beat(first)
    driven.wait(1)
    assert driven.beat(first) == ILLEGAL
    driven.fail_over()
    assert [driven.beat(each) for each in (first, second)] == [NONE] * 2
    # One that does not recover is marked dead again.
    driven.wait(SESSION_S - 1)
    driven.beat(first)
    driven.wait(1)
    assert (driven.state, driven.group.dead) == (PREPARE, {second})


def test_a_coordinator_fails_in_phase_3_and_any_join_begins_a_rebalance() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    parked = driven.join(first)
    driven.shard.unload(driven.now)
    assert error_of(parked) == DesignErrorCode.NOT_COORDINATOR_FOR_GROUP
    driven.fail_over()
    assert driven.beat(second) == NONE
    again = driven.join(first)
    assert driven.beat(second) == ILLEGAL
    driven.join(second)
    assert joined(again).group_generation_id == 3


def test_a_coordinator_fails_in_phase_4_and_heartbeats_have_an_older_generation() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    new = driven.join()
    driven.replicates = False
    driven.join(first)
    driven.fail_over()
    assert new.response is None
    driven.replicates = True
    assert driven.group.generation_id == 2
    assert driven.beat(first, 1) == ILLEGAL
    again = driven.join(first)
    # The other consumer never learned its id: it joins as a new one, and its id dies.
    known = driven.join()
    driven.wait(SESSION_S)
    assert sorted(owned(again) + owned(known)) == list(range(6))
    assert len(driven.group.consumers) == 2


def test_a_coordinator_fails_in_phase_5_and_consumers_with_a_response_continue() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.fail_over()
    assert driven.beat(first) == NONE
    # The second one missed its response, and joins again.
    again = driven.join(second)
    assert driven.beat(first) == ILLEGAL
    driven.join(first)
    assert joined(again).group_generation_id == 3


def test_a_new_coordinator_starts_failure_detection() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.wait(SESSION_S - 1)
    driven.fail_over()
    driven.wait(SESSION_S - 1)
    assert driven.beat(first) == NONE
    driven.wait(1)
    assert driven.group.dead == {second}


def test_a_new_coordinator_loads_an_empty_group() -> None:
    driven = DrivenDesign()
    driven.steady(1)
    driven.wait(SESSION_S)
    driven.fail_over()
    assert driven.state is CoordinatorState.READY
    assert joined(driven.join()).group_generation_id == 3


@pytest.mark.parametrize("request_type", LOADING_ERRORS, ids=lambda each: each.__name__)
def test_only_a_join_is_illegal_while_the_coordinator_catches_up(request_type: type) -> None:
    code = LOADING_ERRORS[request_type]
    is_join = request_type.__name__ == "DesignJoinGroupRequest"
    assert (code == DesignErrorCode.ILLEGAL_PROTOCOL_STATE) == is_join
    assert (code == DesignErrorCode.COORDINATOR_STARTUP_NOT_COMPLETE) != is_join
