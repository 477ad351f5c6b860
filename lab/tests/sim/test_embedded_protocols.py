"""A member of an incremental group alone: when it joins again by the timeout of its assignment."""

from __future__ import annotations

from typing import Any

from group_lab.assignors.embedded import (
    ProposedAssignment,
    decode_proposed_assignment,
    encode_proposed_assignment,
    encode_subscription,
)
from group_lab.assignors.incremental import LeaderConfig, Policy
from group_lab.coordinator.classic import messages as c
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.sim.classic_membership import ClassicConfig, ClassicMembership
from group_lab.sim.embedded_protocols import IncrementalProtocol
from spark_groups.group.member.embedded import Subscription
from spark_groups.types import TopicPartition

POLICY = Policy.DELAYED
TIMEOUT_S = 2.0
WAITING = encode_proposed_assignment(
    ProposedAssignment(scheduled_rebalance_timeout_ms=int(TIMEOUT_S * 1000))
)


class Talk:
    """A follower, and the coordinator's part of the conversation."""

    def __init__(self) -> None:
        config = ClassicConfig(group_id="g", topics=("t",), heartbeat_interval_s=100.0)
        self.embedded = IncrementalProtocol(LeaderConfig(policy=POLICY))
        self.member = ClassicMembership(config, self.embedded)
        self.now = 0.0

    def asks(self) -> Any:
        self.member.poll(self.now, {"t": 2})
        return self.member.next_request(self.now)

    def joins(self, generation_id: int, assignment: bytes = WAITING) -> None:
        """Let it join, and follow in a generation."""
        assert isinstance(self.asks(), c.JoinGroupRequest)
        response: Any = c.JoinGroupResponse(
            generation_id=generation_id,
            protocol_name=POLICY.value,
            leader="other",
            member_id="m",
        )
        self.member.handle_response(response, self.now)
        assert isinstance(self.asks(), c.SyncGroupRequest)
        self.member.handle_response(c.SyncGroupResponse(assignment=assignment), self.now)

    def learns_of_a_rebalance(self) -> None:
        code = CoordinatorErrorCode.REBALANCE_IN_PROGRESS
        self.member.commit_refused(code, self.member.generation_id, self.member.member_id)


def test_a_member_joins_while_its_application_processes_a_batch() -> None:
    """Kafka's consumers join when the application polls again."""
    talk = Talk()
    talk.joins(1)
    assert talk.asks() is None
    talk.learns_of_a_rebalance()
    # Without a poll.
    assert isinstance(talk.member.next_request(talk.now), c.JoinGroupRequest)


def test_a_follower_joins_again_once_when_the_timeout_is_over() -> None:
    talk = Talk()
    talk.joins(1)
    talk.now = TIMEOUT_S
    # The leader has not joined yet: the coordinator answers with the generation as it is.
    talk.joins(1)
    talk.now += 10 * TIMEOUT_S
    assert talk.asks() is None
    # The leader has joined.
    talk.learns_of_a_rebalance()
    talk.joins(2)
    talk.now += TIMEOUT_S
    assert isinstance(talk.asks(), c.JoinGroupRequest)


def test_an_assignment_that_is_read_again_does_not_extend_the_timeout() -> None:
    talk = Talk()
    talk.joins(1)
    talk.now = TIMEOUT_S / 2
    talk.learns_of_a_rebalance()
    talk.joins(1)
    assert talk.asks() is None
    talk.now = TIMEOUT_S
    assert isinstance(talk.asks(), c.JoinGroupRequest)


def leads(
    embedded: IncrementalProtocol, generation_id: int, now: float, **owned: frozenset[int]
) -> dict[str, frozenset[int]]:
    """Let a leader decide on the topic t; return what each member owns then."""
    claims = {
        each: frozenset(TopicPartition("t", number) for number in own)
        for each, own in owned.items()
    }
    members = tuple(
        c.JoinedMember(
            each,
            metadata=encode_subscription(
                Subscription(version=1, topics=("t",), owned_partitions=own)
            ),
        )
        for each, own in claims.items()
    )
    joined = c.JoinGroupResponse(
        generation_id=generation_id, leader="m", member_id="m", members=members
    )
    sent = embedded.assign(joined, {"t": 4}, now)
    return {
        each: frozenset(
            key.partition for key in decode_proposed_assignment(sent[each]).applied_to(own)
        )
        for each, own in claims.items()
    }


def test_a_follower_that_becomes_leader_knows_when_the_delay_ended() -> None:
    talk = Talk()
    talk.joins(1)
    talk.now = TIMEOUT_S
    talk.joins(1)
    assert leads(talk.embedded, 2, talk.now, m=frozenset({0, 1})) == {"m": {0, 1, 2, 3}}


def test_a_leader_that_is_answered_twice_decides_the_same_again() -> None:
    embedded = IncrementalProtocol(LeaderConfig(policy=POLICY))
    leads(embedded, 1, 0.0, m=frozenset({0, 1, 2}), n=frozenset({3}))
    # Its SyncGroup is lost, so it joins generation 2 once more.
    for now in (1.0, 2.0):
        decided = leads(embedded, 2, now, m=frozenset({0, 1}), n=frozenset({3}))
        assert decided == {"m": {0, 1}, "n": {2, 3}}
    assert leads(embedded, 3, 3.0, m=decided["m"], n=decided["n"]) == decided
