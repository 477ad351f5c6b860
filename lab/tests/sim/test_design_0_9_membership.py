"""A consumer of the design for Kafka 0.9 alone: when it joins, beats, stops, and on each error."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from group_lab.coordinator.design_0_9.messages import (
    DesignErrorCode,
    DesignHeartbeatRequest,
    DesignHeartbeatResponse,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.sim.classic_membership import After, Assigned, Failed, Lost, Phase, Revoked
from group_lab.sim.design_0_9_membership import (
    ERROR_RULES,
    PHASES,
    TRANSITIONS,
    ConsumerInput,
    ConsumerState,
    DesignConfig,
    DesignMembership,
    TopicFilter,
    next_state,
)
from spark_groups.errors import ErrorCode
from spark_groups.group.member.backoff import FIRST_BACKOFF_S
from spark_groups.group.member.embedded import NO_GENERATION
from spark_groups.group.member.member_states import IllegalTransitionError
from spark_groups.types import TopicPartition

COUNTS = {"t": 4}
SESSION_S = 30.0
INTERVAL_S = 10.0
E = DesignErrorCode
S = ConsumerState


def t(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", each) for each in numbers)


class Talk:
    """A consumer, and the coordinator's part of the conversation."""

    def __init__(
        self, subscription: tuple[str, ...] | TopicFilter = ("t",), **options: Any
    ) -> None:
        config = DesignConfig(
            group_id="g", subscription=subscription, session_timeout_s=SESSION_S, **options
        )
        self.consumer = DesignMembership(config)
        self.now = 0.0
        self.counts = COUNTS
        self.generation_id = 0

    def poll(self) -> None:
        self.consumer.poll(self.now, self.counts)

    def asks(self) -> Any:
        return self.consumer.next_request(self.now)

    def answer(self, response: Any) -> bool:
        return self.consumer.handle_response(response, self.now)

    def is_in(self, state: ConsumerState) -> bool:
        return self.consumer.state is state

    def events(self) -> list[Any]:
        events, self.consumer.events = self.consumer.events, []
        return events

    def sends_join(self) -> DesignJoinGroupRequest:
        self.poll()
        self.consumer.prepared()
        request = self.asks()
        assert isinstance(request, DesignJoinGroupRequest)
        return request

    def join(self, *numbers: int) -> DesignJoinGroupRequest:
        """Let it join the next generation, with these partitions."""
        request = self.sends_join()
        self.generation_id += 1
        joined = DesignJoinGroupResponse(
            group_generation_id=self.generation_id, consumer_id="c", partitions_to_own=t(*numbers)
        )
        assert not self.answer(joined)
        return request

    def beat(self) -> DesignHeartbeatRequest:
        """Let it send the next heartbeat."""
        self.now += INTERVAL_S
        self.poll()
        request = self.asks()
        assert isinstance(request, DesignHeartbeatRequest)
        return request

    def refuse_heartbeat(self, code: int) -> bool:
        self.beat()
        return self.answer(DesignHeartbeatResponse(error_code=code))

    def refuse_join(self, code: int) -> bool:
        self.refuse_heartbeat(E.ILLEGAL_GENERATION)
        self.sends_join()
        self.events()
        return self.answer(DesignJoinGroupResponse(error_code=code))

    def refuse_commit(self, code: int) -> bool:
        return self.consumer.commit_refused(code, self.generation_id, "c")


def part_of_group(**options: Any) -> Talk:
    found = Talk(**options)
    found.join(0, 1)
    assert found.events() == [Assigned(t(0, 1), t(0, 1))]
    assert found.is_in(S.PART_OF_GROUP)
    return found


# States.


@pytest.mark.parametrize(
    ("state", "consumer_input"),
    list(product(ConsumerState, ConsumerInput)),
    ids=lambda each: each.name,
)
def test_each_input_leads_where_the_table_says_or_is_refused(
    state: ConsumerState, consumer_input: ConsumerInput
) -> None:
    if consumer_input in TRANSITIONS[state]:
        assert next_state(state, consumer_input) is TRANSITIONS[state][consumer_input]
        return
    consumer = DesignMembership(DesignConfig(group_id="g", subscription=("t",)))
    consumer.state = state
    with pytest.raises(IllegalTransitionError, match=f"{state.name}.*{consumer_input.name}"):
        consumer._move(consumer_input)
    assert consumer.state is state


def test_every_state_has_a_row_and_a_phase_and_every_input_is_used() -> None:
    assert set(TRANSITIONS) == set(PHASES) == set(ConsumerState)
    assert {each for row in TRANSITIONS.values() for each in row} == set(ConsumerInput)


@pytest.mark.parametrize(
    ("state", "phase", "readable"),
    [
        (S.DOWN, Phase.LEFT, t()),
        (S.STARTUP, Phase.UNJOINED, t()),
        (S.PART_OF_GROUP, Phase.STABLE, t(0, 1)),
        (S.REDISCOVER, Phase.STABLE, t(0, 1)),
        (S.STOPPED_CONSUMPTION, Phase.PREPARING_REBALANCE, t()),
        (S.UNABLE_TO_JOIN, Phase.FATAL, t()),
    ],
)
def test_it_reads_as_part_of_a_group_and_while_it_looks_up_the_coordinator(
    state: ConsumerState, phase: Phase, readable: frozenset[TopicPartition]
) -> None:
    talk = part_of_group()
    talk.consumer.state = state
    assert (talk.consumer.phase, talk.consumer.readable) == (phase, readable)


def test_it_joins_without_a_consumer_id_once_the_application_polls() -> None:
    talk = Talk(strategy="round robin")
    assert talk.is_in(S.STARTUP)
    assert talk.asks() is None
    assert talk.join(0, 1) == DesignJoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        topics=("t",),
        consumer_id="",
        partition_assignment_strategy="round robin",
    )
    consumer = talk.consumer
    assert (consumer.member_id, consumer.generation_id) == ("c", 1)
    assert consumer.readable == t(0, 1)
    assert consumer.may_commit
    assert consumer.is_settled


def test_the_end_of_a_generation_stops_consumption_until_the_join_is_answered() -> None:
    talk = part_of_group()
    consumer = talk.consumer
    assert not talk.refuse_heartbeat(E.ILLEGAL_GENERATION)
    assert talk.is_in(S.STOPPED_CONSUMPTION)
    assert consumer.readable == frozenset()
    assert talk.asks() is None, "it joins once the application has committed"
    talk.poll()
    assert consumer.is_preparing
    assert consumer.may_commit
    assert consumer.owned == t(0, 1)
    consumer.prepared()
    assert talk.events() == [Revoked(t(0, 1))]
    assert not talk.consumer.may_commit
    assert talk.join(1, 2).consumer_id == "c"
    assert talk.events() == [Assigned(t(1, 2), t(1, 2))]
    assert talk.beat().group_generation_id == 2


def test_a_consumer_may_choose_not_to_send_its_id_in_a_join() -> None:
    talk = part_of_group(keeps_consumer_id=False)
    assert talk.beat().consumer_id == "c"
    talk.answer(DesignHeartbeatResponse(error_code=E.ILLEGAL_GENERATION))
    assert talk.sends_join().consumer_id == ""


def test_it_leaves_without_a_request() -> None:
    talk = part_of_group()
    talk.consumer.leave()
    assert talk.events() == [Revoked(t(0, 1))]
    assert talk.is_in(S.DOWN)
    talk.poll()
    assert talk.asks() is None
    assert talk.consumer.readable == frozenset()


# Heartbeats.


@pytest.mark.parametrize(("frequency", "interval_s"), [(1, 30.0), (3, 10.0), (10, 3.0)])
def test_it_beats_so_often_in_a_session(frequency: int, interval_s: float) -> None:
    talk = part_of_group(heartbeat_frequency=frequency)
    for beats_at in (interval_s, 2 * interval_s):
        talk.now = beats_at - 0.1
        talk.poll()
        assert talk.asks() is None
        talk.now = beats_at
        talk.poll()
        assert talk.asks() == DesignHeartbeatRequest(
            group_id="g", group_generation_id=1, consumer_id="c"
        )
        talk.now += 0.05
        talk.answer(DesignHeartbeatResponse())


def test_a_heartbeat_that_comes_due_during_a_batch_waits_for_the_next_poll() -> None:
    talk = part_of_group()
    talk.now = 2 * SESSION_S
    assert talk.asks() is None
    talk.poll()
    assert isinstance(talk.asks(), DesignHeartbeatRequest)


def test_it_sends_no_heartbeat_while_a_join_is_in_flight() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.ILLEGAL_GENERATION)
    talk.sends_join()
    talk.now += SESSION_S
    talk.poll()
    assert talk.asks() is None


def test_a_heartbeat_without_an_answer_makes_it_rediscover_and_read_on() -> None:
    talk = part_of_group()
    request = talk.beat()
    assert talk.consumer.response_timeout_s(request) == SESSION_S
    talk.now += SESSION_S
    talk.consumer.handle_failure(talk.now)
    assert talk.is_in(S.REDISCOVER)
    assert talk.consumer.readable == t(0, 1)
    assert talk.consumer.may_commit
    talk.poll()
    assert talk.asks() is None, "it pauses"
    talk.now += FIRST_BACKOFF_S
    talk.poll()
    assert talk.asks() == request, "the new coordinator knows the generation"
    assert talk.is_in(S.PART_OF_GROUP)
    assert talk.events() == []


def test_the_heartbeat_after_a_rediscovery_waits_for_a_poll() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.NOT_COORDINATOR_FOR_GROUP)
    talk.now += 1.0
    assert talk.asks() is None
    talk.poll()
    assert isinstance(talk.asks(), DesignHeartbeatRequest)


def test_a_join_without_an_answer_is_sent_again_to_the_coordinator_found() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.ILLEGAL_GENERATION)
    request = talk.sends_join()
    deadline_s = talk.consumer.response_timeout_s(request)
    assert deadline_s > SESSION_S, "the coordinator may wait a session for the others"
    talk.now += deadline_s
    talk.consumer.handle_failure(talk.now)
    assert talk.is_in(S.STOPPED_CONSUMPTION)
    assert talk.asks() is None, "it pauses"
    talk.now += FIRST_BACKOFF_S
    assert talk.asks() == request


# Errors.


CATCH_UP = (E.ILLEGAL_PROTOCOL_STATE, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR_FOR_GROUP)
FAILS = (
    E.INCONSISTENT_PARTITIONING_STRATEGY,
    E.UNKNOWN_PARTITIONING_STRATEGY,
    E.SESSION_TIMEOUT_TOO_HIGH,
)
Then = tuple[bool, ConsumerState]
"""Whether the coordinator is looked up again, and the consumer's next state."""
READS_ON: Then = (False, S.PART_OF_GROUP)
STOPS: Then = (False, S.STOPPED_CONSUMPTION)
HEARTBEAT: dict[int, Then] = {
    **dict.fromkeys(CATCH_UP, (True, S.REDISCOVER)),
    **dict.fromkeys(FAILS, (False, S.UNABLE_TO_JOIN)),
    E.COORDINATOR_STARTUP_NOT_COMPLETE: READS_ON,
    E.ILLEGAL_GENERATION: STOPS,
    E.UNKNOWN_CONSUMER: STOPS,
    ErrorCode.UNKNOWN_SERVER_ERROR: (False, S.UNABLE_TO_JOIN),
}
JOIN: dict[int, Then] = HEARTBEAT | {
    **dict.fromkeys(CATCH_UP, (True, S.STOPPED_CONSUMPTION)),
    E.COORDINATOR_STARTUP_NOT_COMPLETE: STOPS,
}
COMMIT: dict[int, Then] = HEARTBEAT | {ErrorCode.UNKNOWN_SERVER_ERROR: READS_ON}


def test_every_code_has_a_rule() -> None:
    unknown = {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert set(ERROR_RULES) == set(DesignErrorCode) - {E.NONE} == HEARTBEAT.keys() - unknown


@pytest.mark.parametrize(("code", "then"), HEARTBEAT.items())
def test_errors_of_a_heartbeat(code: int, then: Then) -> None:
    talk = part_of_group()
    assert (talk.refuse_heartbeat(code), talk.consumer.state) == then


@pytest.mark.parametrize(("code", "then"), JOIN.items())
def test_errors_of_a_join(code: int, then: Then) -> None:
    talk = part_of_group()
    assert (talk.refuse_join(code), talk.consumer.state) == then


@pytest.mark.parametrize(("code", "then"), COMMIT.items())
def test_errors_of_a_commit(code: int, then: Then) -> None:
    talk = part_of_group()
    assert (talk.refuse_commit(code), talk.consumer.state) == then


@pytest.mark.parametrize(
    "code",
    [each for each, rule in ERROR_RULES.items() if rule.join in (After.RETRY, After.REDISCOVER)],
)
def test_it_pauses_before_it_joins_again_with_its_id(code: int) -> None:
    talk = part_of_group()
    talk.refuse_join(code)
    talk.poll()
    assert talk.asks() is None
    talk.now += FIRST_BACKOFF_S
    assert talk.asks().consumer_id == "c"


def test_a_coordinator_that_starts_up_is_asked_again_after_a_pause() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.COORDINATOR_STARTUP_NOT_COMPLETE)
    talk.poll()
    assert talk.asks() is None
    talk.now += FIRST_BACKOFF_S
    talk.poll()
    assert isinstance(talk.asks(), DesignHeartbeatRequest)


def test_an_answer_without_an_error_makes_the_next_pause_short_again() -> None:
    talk = part_of_group()
    for _ in range(3):
        talk.refuse_heartbeat(E.COORDINATOR_STARTUP_NOT_COMPLETE)
    talk.refuse_heartbeat(E.NONE)
    talk.refuse_heartbeat(E.COORDINATOR_STARTUP_NOT_COMPLETE)
    talk.now += FIRST_BACKOFF_S
    talk.poll()
    assert isinstance(talk.asks(), DesignHeartbeatRequest)


def test_the_pause_before_the_first_join_of_a_new_group_keeps_it_in_startup() -> None:
    talk = Talk()
    talk.sends_join()
    assert talk.answer(DesignJoinGroupResponse(error_code=E.ILLEGAL_PROTOCOL_STATE))
    assert talk.is_in(S.STARTUP)
    assert talk.asks() is None
    talk.now += FIRST_BACKOFF_S
    assert talk.join(0).consumer_id == ""


def test_a_consumer_that_the_coordinator_does_not_know_loses_its_partitions() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.UNKNOWN_CONSUMER)
    assert talk.events() == [], "the application learns of it when it polls"
    assert not talk.consumer.may_commit
    talk.now += FIRST_BACKOFF_S
    assert talk.asks() is None, "it joins when the application polls"
    talk.poll()
    assert talk.events() == [Lost(t(0, 1), "UNKNOWN_CONSUMER")]
    assert talk.asks().consumer_id == ""


def test_a_join_with_an_unknown_id_is_repeated_without_it() -> None:
    talk = part_of_group()
    talk.refuse_join(E.UNKNOWN_CONSUMER)
    talk.now += FIRST_BACKOFF_S
    assert talk.join(3).consumer_id == ""
    assert talk.events() == [Assigned(t(3), t(3))], "it had released its partitions"


def test_a_commit_of_an_old_generation_costs_the_partitions_but_not_the_id() -> None:
    talk = part_of_group()
    talk.refuse_commit(E.ILLEGAL_GENERATION)
    assert not talk.consumer.may_commit
    assert talk.consumer.generation_id == NO_GENERATION
    assert talk.sends_join().consumer_id == "c"
    assert talk.events() == [Lost(t(0, 1), "ILLEGAL_GENERATION")]


def test_partitions_are_lost_if_the_commit_before_a_join_is_refused() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(E.ILLEGAL_GENERATION)
    talk.poll()
    talk.refuse_commit(E.UNKNOWN_CONSUMER)
    talk.consumer.prepared()
    assert talk.events() == [Lost(t(0, 1), "UNKNOWN_CONSUMER")]
    assert talk.asks().consumer_id == ""


@pytest.mark.parametrize("code", FAILS)
def test_a_refusal_names_what_to_change(code: DesignErrorCode) -> None:
    talk = part_of_group()
    talk.refuse_join(code)
    (failed,) = talk.events()
    assert failed == Failed(f"{code.name}: {ERROR_RULES[code].remedy}")
    talk.now += 1.0
    talk.poll()
    assert talk.asks() is None
    talk.consumer.leave()
    assert talk.is_in(S.DOWN)


def test_an_unknown_error_costs_the_partitions() -> None:
    talk = part_of_group()
    talk.refuse_heartbeat(-1)
    lost, failed = talk.events()
    assert lost == Lost(t(0, 1), failed.error)
    assert failed.error.startswith("UNKNOWN_SERVER_ERROR: ")
    assert talk.consumer.owned == frozenset()


# Answers that come late.


def test_a_refused_commit_of_an_earlier_generation_changes_nothing() -> None:
    talk = part_of_group()
    assert not talk.consumer.commit_refused(E.ILLEGAL_GENERATION, 0, "c")
    assert not talk.consumer.commit_refused(E.UNKNOWN_CONSUMER, 1, "")
    assert talk.consumer.may_commit


def test_an_answer_to_a_heartbeat_of_an_earlier_generation_changes_nothing() -> None:
    talk = part_of_group()
    talk.beat()
    talk.refuse_commit(E.ILLEGAL_GENERATION)
    talk.answer(DesignHeartbeatResponse(error_code=E.UNKNOWN_CONSUMER))
    assert talk.sends_join().consumer_id == "c"


def test_answers_after_the_leave_change_nothing() -> None:
    talk = part_of_group()
    talk.beat()
    talk.consumer.leave()
    assert not talk.answer(DesignHeartbeatResponse(error_code=E.NOT_COORDINATOR_FOR_GROUP))
    assert not talk.refuse_commit(E.NOT_COORDINATOR_FOR_GROUP)
    talk.consumer.handle_failure(talk.now)
    assert talk.is_in(S.DOWN)


def test_a_consumer_that_stood_still_longer_than_a_session_learns_it_from_its_heartbeat() -> None:
    talk = part_of_group()
    talk.now = 3 * SESSION_S
    talk.poll()
    assert talk.consumer.readable == t(0, 1), "until then it reads what others own"
    assert isinstance(talk.asks(), DesignHeartbeatRequest)
    talk.answer(DesignHeartbeatResponse(error_code=E.UNKNOWN_CONSUMER))
    assert talk.consumer.readable == frozenset()


# Subscriptions.


def test_new_partitions_and_topics_are_no_reason_to_join() -> None:
    talk = part_of_group()
    talk.counts = {"t": 8, "u": 1}
    talk.poll()
    assert talk.consumer.is_settled


@pytest.mark.parametrize(
    ("subscription", "topics", "more"),
    [
        (TopicFilter.white_list("orders, bills.*"), ("bills-1", "orders"), ("bills-2",)),
        (TopicFilter.black_list("orders, bills.*"), ("orders-old", "t"), ("u",)),
    ],
)
def test_a_list_of_expressions_is_evaluated_at_each_poll(
    subscription: TopicFilter, topics: tuple[str, ...], more: tuple[str, ...]
) -> None:
    talk = Talk(subscription)
    talk.counts = dict.fromkeys(("t", "bills-1", "orders", "orders-old"), 1)
    assert talk.join(0).topics == topics
    talk.events()
    ignored = "bills-3" if subscription.excludes else "shops"
    talk.counts = {**talk.counts, ignored: 1}
    talk.poll()
    assert talk.consumer.is_settled
    talk.counts = {**talk.counts, **dict.fromkeys(more, 1)}
    talk.poll()
    assert talk.consumer.is_preparing, "it commits before it joins with the new list"
    assert talk.join(0).topics == tuple(sorted(topics + more))
    assert talk.events() == [Revoked(t(0)), Assigned(t(0), t(0))]


def test_a_list_that_changes_during_a_join_is_joined_with_afterwards() -> None:
    talk = Talk(TopicFilter.white_list(".*"))
    talk.sends_join()
    talk.counts = {"t": 4, "u": 1}
    talk.poll()
    talk.answer(DesignJoinGroupResponse(group_generation_id=1, consumer_id="c"))
    assert talk.sends_join().topics == ("t", "u")


@pytest.mark.parametrize("expression", ["", "  ", "(?=a)", "*"])
def test_an_expression_that_is_not_re2_is_refused_at_once(expression: str) -> None:
    with pytest.raises(ValueError, match=r"RE2"):
        TopicFilter.black_list(expression)
