"""The comparison itself: scripts reach all their purposes, and a difference is reported."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from group_lab.coordinator import messages as c
from group_lab.coordinator.profile import KAFKA_4_2, KAFKA_4_3, KAFKA_4_4, Profile
from lab.tests.conformance.conformance_setup import SEEDS, STEPS
from lab.tests.conformance.pair import DisagreementError, Pair
from lab.tests.conformance.script import GroupScript
from lab.tests.scenarios.model_world import ModelWorld
from lab.tests.scenarios.world import CLIENT_ID, Operated, Operation
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import TopicId

MORE_SEEDS = range(20)


class Recording(ModelWorld):
    """A model that takes the broker's place and counts what it is asked and says."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.said: Counter[tuple[str, str]] = Counter()

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        answer = super().ask(request, client_id)
        assert isinstance(answer, (m.HeartbeatResponse, m.DescribeGroupResponse))
        self.said[type(request).__name__, ErrorCode.name_of(answer.error_code)] += 1
        if isinstance(answer, m.HeartbeatResponse) and answer.assignment is not None:
            self.said["assignment", "empty" if not answer.assignment else "partitions"] += 1
        return answer

    def operate(self, request: Operation) -> Operated:
        answer = super().operate(request)
        self.said[type(request).__name__, ErrorCode.name_of(answer.error_code)] += 1
        match answer:
            case c.LeaveGroupResponse():
                codes = [each.error_code for each in answer.members]
                self.said.update(("LeavingMember", ErrorCode.name_of(each)) for each in codes)
            case c.OffsetDeleteResponse():
                deleted = answer.errors.values()
                self.said.update(("OffsetDelete", ErrorCode.name_of(each)) for each in deleted)
            case c.ListGroupsResponse():
                self.said["ListedGroup", "NONE"] += len(answer.groups)
        return answer

    def await_patterns(self) -> None:
        super().await_patterns()
        self.said["patterns", "looked up"] += 1

    def restart(self, down_s: float = 0.0) -> None:
        super().restart(down_s)
        self.said["restart", "done"] += 1

    def commit(
        self, request: m.OffsetCommitRequest, names: Mapping[TopicId, str], api_version: int
    ) -> Mapping[tuple[TopicId, int], int]:
        answers = super().commit(request, names, api_version)
        for code in answers.values():
            self.said["OffsetCommitRequest", ErrorCode.name_of(code)] += 1
        return answers

    def fetch(
        self, request: m.OffsetFetchRequest, names: Mapping[TopicId, str], api_version: int
    ) -> m.OffsetFetchResponse:
        answer = super().fetch(request, names, api_version)
        self.said["OffsetFetchRequest", ErrorCode.name_of(answer.error_code)] += 1
        return answer


class Slow(ModelWorld):
    """A model that takes the broker's place, and sometimes answers late."""

    def __init__(self, profile: Profile, seed: int) -> None:
        super().__init__(profile)
        self.chance = random.Random(f"slow {seed}")

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        self.dawdle()
        answer = super().ask(request, client_id)
        self.dawdle()
        return answer

    def operate(self, request: Operation) -> Operated:
        self.dawdle()
        return super().operate(request)

    def dawdle(self) -> None:
        if self.chance.random() < 0.1:
            self.sleep(self.chance.choice((0.1, 0.7, 2.0)))


def test_scripts_reach_every_answer_they_are_for() -> None:
    said: Counter[tuple[str, str]] = Counter()
    ended: Counter[str] = Counter()
    for seed in MORE_SEEDS:
        world = Recording(KAFKA_4_3)
        pair = Pair(world, KAFKA_4_3, seed, "")
        pair.play(STEPS)
        said += world.said
        ended.update(pair.ended)
    for code in (
        *("NONE", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID"),
        *("FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED", "INVALID_REQUEST"),
        *("UNSUPPORTED_ASSIGNOR", "INVALID_REGULAR_EXPRESSION"),
    ):
        assert said["HeartbeatRequest", code] > 0, code
    for code in (
        *("NONE", "STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "UNSUPPORTED_VERSION"),
        *("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "OFFSET_METADATA_TOO_LARGE"),
    ):
        assert said["OffsetCommitRequest", code] > 0, code
    for code in ("NONE", "STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
        assert said["OffsetFetchRequest", code] > 0, code
    for code in ("NONE", "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"):
        assert said["DeleteGroupsRequest", code] > 0, code
    for code in ("NONE", "GROUP_SUBSCRIBED_TO_TOPIC", "UNKNOWN_TOPIC_OR_PARTITION"):
        assert said["OffsetDelete", code] > 0, code
    assert said["LeavingMember", "NONE"] > 0
    assert said["ListedGroup", "NONE"] > 0
    assert said["patterns", "looked up"] > 0
    assert said["restart", "done"] > 0
    assert set(ended) == {"_falls_silent", "_does_not_revoke"}
    assert said["assignment", "partitions"] > len(MORE_SEEDS) * STEPS / 50
    assert said["assignment", "empty"] > 0
    assert said["DescribeGroupRequest", "NONE"] > len(MORE_SEEDS) * STEPS / 50


@pytest.mark.parametrize(
    ("broker", "model"),
    [
        (KAFKA_4_2, KAFKA_4_3),
        (KAFKA_4_3, KAFKA_4_4),
        (replace(KAFKA_4_3, own_revocation_is_released=False), KAFKA_4_3),
        (replace(KAFKA_4_3, strips_unsubscribed=False), KAFKA_4_3),
        (replace(KAFKA_4_3, strip_overwrites_previous_epoch=False), KAFKA_4_3),
        (replace(KAFKA_4_3, empty_subscription_is_a_step=False), KAFKA_4_3),
        (replace(KAFKA_4_3, bumps_epoch_while_unrevoked=True), KAFKA_4_3),
        (replace(KAFKA_4_3, stable_extras=False), KAFKA_4_3),
        (replace(KAFKA_4_3, batches_assignments=False), KAFKA_4_3),
        (replace(KAFKA_4_3, dropped_pattern_bumps=False), KAFKA_4_3),
        (replace(KAFKA_4_4, keeps_old_instance_ids=True), KAFKA_4_4),
        (replace(KAFKA_4_4, last_leave_installs_target=False), KAFKA_4_4),
    ],
    ids=lambda profile: profile.name,
)
def test_coordinator_of_another_kind_is_detected(broker: Profile, model: Profile) -> None:
    assert any(differ(ModelWorld(broker), model, seed) for seed in MORE_SEEDS)


def differ(world: ModelWorld, model: Profile, seed: int) -> bool:
    try:
        Pair(world, model, seed, "how").play(STEPS)
    except DisagreementError:
        return True
    return False


def test_difference_is_reported_with_seed_step_both_answers_and_the_command() -> None:
    other = replace(KAFKA_4_3, known_member_rejoins=False)
    pair = Pair(ModelWorld(other), KAFKA_4_3, 3, "make it again")
    with pytest.raises(DisagreementError) as raised:
        pair.play(STEPS)
    text = str(raised.value)
    assert re.match(r"seed 3, step \d+, kafka-4\.3: .*: group_id=seed-3-", text)
    assert re.search(r"^  \w[\w -]*: broker .+, model .+$", text, re.MULTILINE)
    assert text.endswith("repeat: make it again")


def test_same_coordinator_never_differs() -> None:
    for seed in SEEDS:
        pair = Pair(ModelWorld(KAFKA_4_4), KAFKA_4_4, seed, "")
        pair.play(STEPS)
        assert pair.steps >= STEPS


@pytest.mark.parametrize("profile", [KAFKA_4_2, KAFKA_4_4], ids=lambda profile: profile.name)
def test_broker_that_is_slow_never_differs(profile: Profile) -> None:
    given_up = 0
    for seed in MORE_SEEDS:
        pair = Pair(Slow(profile, seed), profile, seed, "")
        pair.play(STEPS)
        given_up += len(pair.given_up)
    assert given_up > 0


def test_a_broker_that_is_always_too_slow_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair(Recording(KAFKA_4_3), KAFKA_4_3, 1, "")

    def unsure(group: GroupScript, _edges: list[float]) -> bool:
        pair.given_up.add(group.group_id)
        pair.groups = [each for each in pair.groups if each is not group]
        pair._add_group()
        return False

    monkeypatch.setattr(pair, "_is_sure", unsure)
    with pytest.raises(TimeoutError, match="6 groups given up"):
        pair.play(5)
