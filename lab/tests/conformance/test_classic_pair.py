"""The comparison in classic and mixed groups: scripts reach their purposes, differences show."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from group_lab.coordinator.classic import messages as k
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_3,
    KAFKA_4_4,
    DowngradeRebalance,
    Profile,
)
from group_lab.coordinator.shard import Ticket
from lab.tests.conformance.classic_pair import ClassicPair
from lab.tests.conformance.conformance_setup import SEEDS, STEPS
from lab.tests.conformance.pair import DisagreementError
from lab.tests.scenarios.model_world import ModelWorld, Sent
from lab.tests.scenarios.wording import code_text
from lab.tests.scenarios.world import CLIENT_ID, ClassicRequest, ClassicResponse

MORE_SEEDS = range(20)


class Recording(ModelWorld):
    """A model that takes the broker's place and counts what it is asked and says."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.sent: list[Sent] = []

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Sent:
        self.sent.append(super().send(request, client_id))
        return self.sent[-1]

    def said(self) -> Counter[tuple[str, str]]:
        """Return how often each request got each answer, or none."""
        return Counter(_said(each.ticket.request, each.answer()) for each in self.sent)


def _said(request: object, answer: ClassicResponse | None) -> tuple[str, str]:
    name = type(request).__name__
    return name, "nothing" if answer is None else code_text(answer.error_code)


class Slow(ModelWorld):
    """A model that takes the broker's place, and sometimes handles a request late."""

    def __init__(self, profile: Profile, seed: int) -> None:
        super().__init__(profile)
        self.chance = random.Random(f"slow {seed}")

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Sent:
        if self.chance.random() < 0.1:
            self.sleep(self.chance.choice((0.1, 0.7, 2.0)))
        return super().send(request, client_id)


@dataclass(frozen=True)
class LateSent(Sent):
    """A request that the coordinator handles later.

    Args:
        handled: It, once it is handled.
    """

    handled: list[Sent]

    def answer(self) -> ClassicResponse | None:
        return self.handled[0].answer() if self.handled else None


class Late(ModelWorld):
    """A model that takes the broker's place, and handles a join after the request that follows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._late: list[tuple[str, LateSent]] = []

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Sent:
        if not isinstance(request, k.JoinGroupRequest):
            return super().send(request, client_id)
        sent = LateSent(Ticket(request), [])
        self._late.append((client_id, sent))
        return sent

    def sleep(self, seconds: float) -> None:
        self.settle()
        super().sleep(seconds)

    def settle(self) -> None:
        late, self._late = self._late, []
        for client_id, sent in late:
            request = sent.ticket.request
            assert isinstance(request, k.JoinGroupRequest)
            sent.handled.append(super().send(request, client_id))


class Hasty(ModelWorld):
    """A coordinator that answers a sync before the leader has sent the assignment."""

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Sent:
        sent = super().send(request, client_id)
        if isinstance(request, k.SyncGroupRequest) and sent.ticket.response is None:
            sent.ticket.response = k.SyncGroupResponse()
        return sent


def test_scripts_reach_every_answer_they_are_for() -> None:
    said: Counter[tuple[str, str]] = Counter()
    converted = 0
    for seed in MORE_SEEDS:
        world = Recording(KAFKA_4_3)
        pair = ClassicPair(world, KAFKA_4_3, seed, "")
        pair.play(STEPS)
        said += world.said()
        groups = world.shard.groups.values()
        converted += sum(any(each.classic for each in group.members.values()) for group in groups)
    for code in (
        *("ok", "nothing", "MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"),
        *("INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT", "INVALID_GROUP_ID"),
        *("GROUP_MAX_SIZE_REACHED", "REBALANCE_IN_PROGRESS"),
    ):
        assert said["JoinGroupRequest", code] > 0, code
    for code in (
        *("ok", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"),
        *("FENCED_INSTANCE_ID", "INCONSISTENT_GROUP_PROTOCOL"),
    ):
        assert said["SyncGroupRequest", code] > 0, code
    for code in (
        *("ok", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"),
        "FENCED_INSTANCE_ID",
    ):
        assert said["ClassicHeartbeatRequest", code] > 0, code
    assert said["DescribeGroupsRequest", "ok"] > 0
    assert said["DescribeGroupsRequest", "GROUP_ID_NOT_FOUND"] > 0
    assert converted > 0


@pytest.mark.parametrize(
    ("broker", "model"),
    [
        (KAFKA_4_0, KAFKA_4_4),
        (replace(KAFKA_4_3, classic_follows_target=False), KAFKA_4_3),
        (replace(KAFKA_4_3, downgrade_rebalance=DowngradeRebalance.NEVER), KAFKA_4_3),
    ],
    ids=lambda profile: profile.name,
)
def test_coordinator_of_another_kind_is_detected(broker: Profile, model: Profile) -> None:
    assert any(differ(ModelWorld(broker), model, seed) for seed in range(60))


def differ(world: ModelWorld, model: Profile, seed: int) -> bool:
    try:
        ClassicPair(world, model, seed, "how").play(STEPS)
    except DisagreementError:
        return True
    return False


def test_an_answer_where_the_model_waits_is_reported() -> None:
    pair = ClassicPair(Hasty(KAFKA_4_3), KAFKA_4_3, 1, "make it again")
    with pytest.raises(DisagreementError) as raised:
        pair.play(STEPS)
    text = str(raised.value)
    assert re.search(r"a sync.*: group_id=seed-", text)
    assert "model waits for an answer" in text
    assert text.endswith("repeat: make it again")


def test_same_coordinator_never_differs() -> None:
    for seed in SEEDS:
        pair = ClassicPair(ModelWorld(KAFKA_4_4), KAFKA_4_4, seed, "")
        pair.play(STEPS)
        assert pair.steps >= STEPS


def test_broker_that_handles_joins_late_never_differs() -> None:
    # 28: a group without a record. 125: timers of two groups that fire one after the other.
    for seed in (*SEEDS, 28, 125):
        ClassicPair(Late(KAFKA_4_4), KAFKA_4_4, seed, "").play(STEPS)


def test_broker_that_is_slow_never_differs() -> None:
    # 153: it is slow while a timer fires that the request began. 216: two timers beside a pause.
    for seed in (*MORE_SEEDS, 153, 216):
        ClassicPair(Slow(KAFKA_4_3, seed), KAFKA_4_3, seed, "").play(STEPS)
