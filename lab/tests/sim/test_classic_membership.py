"""A classic member alone: when it joins, what it gives up, and what it does about each error."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.assignors.classic import ClassicAssignor, ClassicRangeAssignor
from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.assignors.sticky import CooperativeStickyAssignor
from group_lab.coordinator.classic import messages as c
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeaveGroupRequest, LeaveGroupResponse
from group_lab.sim.classic_membership import (
    Assigned,
    ClassicConfig,
    ClassicMembership,
    Failed,
    Lost,
    Phase,
    Revoked,
)
from group_lab.sim.embedded_protocols import ConsumerProtocol
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import (
    NO_GENERATION,
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from spark_groups.types import TopicPartition

COUNTS = {"t": 4}


def t(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", each) for each in numbers)


class Talk:
    """A member, and the coordinator's part of the conversation."""

    def __init__(self, assignor: ClassicAssignor, instance_id: str | None = None) -> None:
        config = ClassicConfig(
            group_id="g",
            topics=("t",),
            instance_id=instance_id,
            heartbeat_interval_s=3.0,
            rebalance_timeout_s=60.0,
        )
        self.member = ClassicMembership(config, ConsumerProtocol((assignor,)))
        self.now = 0.0
        self.generation_id = 0

    def poll(self) -> None:
        self.member.poll(self.now, COUNTS)

    def asks(self) -> Any:
        return self.member.next_request(self.now)

    def answer(self, response: Any) -> bool:
        return self.member.handle_response(response, self.now)

    def refuse(self, kind: Any, code: int) -> bool:
        found = self.answer(kind(error_code=code))
        self.now += 2.0
        return found

    def events(self) -> list[Any]:
        events, self.member.events = self.member.events, []
        return events

    def join(self, *, leader: str = "other") -> c.JoinGroupRequest:
        """Let it join the next generation, up to the answer to JoinGroup."""
        self.poll()
        if self.member.is_preparing:
            self.member.prepared()
        request = self.asks()
        assert isinstance(request, c.JoinGroupRequest)
        self.generation_id += 1
        joined = c.JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_name=request.protocols[0].name,
            leader=leader,
            member_id="m",
        )
        self.answer(joined)
        return request

    def sync(self, *numbers: int) -> c.SyncGroupRequest:
        request = self.asks()
        assert isinstance(request, c.SyncGroupRequest)
        assignment = encode_assignment(EmbeddedAssignment(partitions=t(*numbers)))
        self.answer(c.SyncGroupResponse(assignment=assignment))
        self.poll()
        return request

    def learns_of_a_rebalance(self) -> None:
        self.now += 3.0
        assert isinstance(self.asks(), c.ClassicHeartbeatRequest)
        code = CoordinatorErrorCode.REBALANCE_IN_PROGRESS
        self.answer(c.ClassicHeartbeatResponse(error_code=code))


def eager(instance_id: str | None = None) -> Talk:
    found = Talk(ClassicRangeAssignor(), instance_id)
    found.join()
    found.sync(0, 1)
    assert found.events() == [Assigned(t(0, 1), t(0, 1))]
    return found


def cooperative() -> Talk:
    found = Talk(CooperativeStickyAssignor())
    found.join()
    found.sync(0, 1)
    assert found.events() == [Assigned(t(0, 1), t(0, 1))]
    return found


def test_it_joins_again_with_the_id_that_the_coordinator_requires() -> None:
    talk = Talk(ClassicRangeAssignor())
    assert talk.asks() is None, "it joins when the application polls"
    talk.poll()
    assert talk.asks().member_id == ""
    code = CoordinatorErrorCode.MEMBER_ID_REQUIRED
    talk.answer(c.JoinGroupResponse(error_code=code, member_id="m"))
    assert talk.asks().member_id == "m"


def test_the_leader_assigns_and_joins_again_when_a_topic_grows() -> None:
    talk = Talk(ClassicRangeAssignor())
    talk.poll()
    talk.asks()
    metadata = encode_subscription(Subscription(topics=("t",)))
    members = tuple(c.JoinedMember(each, metadata=metadata) for each in ("m", "n"))
    talk.answer(
        c.JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="m", member_id="m", members=members
        )
    )
    sent = talk.sync(0, 1)
    assigned = {key: decode_assignment(each).partitions for key, each in sent.assignments.items()}
    assert assigned == {"m": t(0, 1), "n": t(2, 3)}
    talk.member.poll(talk.now, {"t": 5})
    assert talk.member.is_preparing


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    talk = eager()
    talk.learns_of_a_rebalance()
    assert talk.asks() is None, "it joins when the application polls"
    talk.poll()
    assert talk.member.is_preparing
    assert talk.member.owned == t(0, 1), "until the application has committed"
    talk.member.prepared()
    assert talk.events() == [Revoked(t(0, 1))]
    request = talk.join()
    assert decode_subscription(request.protocols[0].metadata).owned_partitions == frozenset()


def test_a_cooperative_member_gives_up_what_it_was_not_assigned_and_joins_again() -> None:
    talk = cooperative()
    talk.learns_of_a_rebalance()
    subscription = decode_subscription(talk.join().protocols[0].metadata)
    assert (subscription.owned_partitions, subscription.generation_id) == (t(0, 1), 1)
    assert talk.member.readable == t(0, 1), "it reads on"
    talk.sync(1)
    assert talk.member.revoking == t(0)
    assert talk.member.readable == t(1)
    assert talk.events() == []
    talk.member.revoked()
    assert talk.events() == [Revoked(t(0)), Assigned(t(1), t())]
    subscription = decode_subscription(talk.join().protocols[0].metadata)
    assert (subscription.owned_partitions, subscription.generation_id) == (t(1), 2)
    talk.sync(1, 2)
    assert talk.events() == [Assigned(t(1, 2), t(2))]
    assert talk.member.is_settled


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "m"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_member_that_lost_its_generation_loses_its_partitions(code: int, member_id: str) -> None:
    talk = cooperative()
    talk.now = 3.0
    talk.asks()
    assert not talk.refuse(c.ClassicHeartbeatResponse, code)
    assert talk.events() == [], "the application learns of it when it polls"
    request = talk.join()
    name = ErrorCode.name_of(code)
    assert talk.events() == [Lost(t(0, 1), name)]
    assert request.member_id == member_id
    assert decode_subscription(request.protocols[0].metadata).generation_id == NO_GENERATION


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_it_looks_up_a_coordinator_that_has_moved_and_stays_a_member(code: int) -> None:
    talk = eager()
    talk.now = 3.0
    talk.asks()
    assert talk.refuse(c.ClassicHeartbeatResponse, code)
    assert isinstance(talk.asks(), c.ClassicHeartbeatRequest)
    assert talk.member.owned == t(0, 1)


@pytest.mark.parametrize(
    "code", [CoordinatorErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_it_joins_again_when_it_may_not_sync(code: int) -> None:
    talk = Talk(ClassicRangeAssignor())
    talk.join()
    talk.asks()
    talk.refuse(c.SyncGroupResponse, code)
    assert talk.join().member_id == "m"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ],
)
def test_other_errors_are_final(code: int) -> None:
    talk = eager()
    talk.now = 3.0
    talk.asks()
    talk.refuse(c.ClassicHeartbeatResponse, code)
    lost, failed = talk.events()
    assert isinstance(lost, Lost)
    assert isinstance(failed, Failed)
    talk.poll()
    assert talk.asks() is None
    assert talk.member.readable == frozenset()


def test_an_application_that_does_not_poll_costs_the_membership() -> None:
    talk = eager()
    talk.now = 61.0
    assert isinstance(talk.asks(), LeaveGroupRequest)
    talk.answer(LeaveGroupResponse())
    assert talk.asks() is None
    talk.poll()
    assert talk.events() == [Lost(t(0, 1), "max.poll.interval.ms is over")]
    assert talk.asks().member_id == ""


def test_a_static_member_that_does_not_poll_falls_silent_without_a_leave() -> None:
    talk = eager("i")
    talk.now = 61.0
    assert talk.asks() is None
    talk.now += 10 * talk.member.config.heartbeat_interval_s
    assert talk.asks() is None, "no heartbeat either: its session ends"
    talk.poll()
    assert talk.events() == [Lost(t(0, 1), "max.poll.interval.ms is over")]
    request = talk.asks()
    assert (request.member_id, request.group_instance_id) == ("", "i")


def test_defaults_are_those_of_kafkas_consumers() -> None:
    """Source: ConsumerConfig; the session timeout was 10 s before Kafka 3.0 (KIP-735)."""
    config = ClassicConfig(group_id="g", topics=("t",))
    assert config.session_timeout_s == 45.0
    assert config.heartbeat_interval_s == 3.0
    assert config.rebalance_timeout_s == 300.0
    assert config.instance_id is None


def test_a_refused_commit_of_an_earlier_generation_changes_nothing() -> None:
    talk = eager()
    assert not talk.member.commit_refused(ErrorCode.ILLEGAL_GENERATION, 0, "m")
    assert talk.member.may_commit
    talk.member.commit_refused(ErrorCode.ILLEGAL_GENERATION, 1, "m")
    assert not talk.member.may_commit


def test_a_lost_answer_to_sync_group_makes_it_join_again() -> None:
    talk = Talk(ClassicRangeAssignor())
    talk.join()
    assert isinstance(talk.asks(), c.SyncGroupRequest)
    talk.member.handle_failure(talk.now)
    talk.now += 2.0
    assert talk.join().member_id == "m"


def test_a_dynamic_member_leaves_and_a_static_one_stays_in_the_group() -> None:
    talk = eager()
    talk.member.leave()
    assert talk.events() == [Revoked(t(0, 1))]
    assert isinstance(talk.asks(), LeaveGroupRequest)
    talk.answer(LeaveGroupResponse())
    assert talk.member.phase is Phase.LEFT
    static = Talk(ClassicRangeAssignor(), "i")
    assert static.join().group_instance_id == "i"
    static.sync(0)
    static.member.leave()
    assert static.asks() is None
    assert static.member.phase is Phase.LEFT
