"""What notes and answers tell: the size of groups, which group, how often."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator.settings import BrokerSettings
from spark_groups.lab.sim import transcript_hints as hints
from spark_groups.lab.sim.transcripts import Step


def step(note: str = "", response: object = None) -> Step:
    return Step(1, "hb", {}, response, note)


FULL = "The consumer group has reached its maximum capacity of 3 members."


@pytest.mark.parametrize(
    ("steps", "max_size"),
    [
        ([], BrokerSettings().max_size),
        ([step("a join", {"err": "NONE", "msg": None})], BrokerSettings().max_size),
        ([step(), step(response={"err": "GROUP_MAX_SIZE_REACHED", "msg": FULL})], 3),
        ([step("join 1 of max 5"), step(response={"msg": FULL})], 5),
    ],
)
def test_a_full_group_tells_how_many_members_there_may_be(steps: list[Step], max_size: int) -> None:
    broker = hints.broker_of(steps)
    assert broker.max_size == max_size
    assert broker.session_timeout_s == 4.0


def test_a_note_may_count_heartbeats() -> None:
    assert hints.heartbeats(step("resolved after 0.12s, 2 heartbeats, matched=True")) == 2
    assert hints.heartbeats(step("resolved")) is None


@pytest.mark.parametrize(
    ("note", "response", "group"),
    [
        ("", {"msg": "Consumer group nosuch not found."}, "nosuch"),
        ("", {"msg": "Group g is not a consumer group."}, "g"),
        ("", {"msg": "Member m1 is not a member of group g."}, "g"),
        ("", {"msg": "Instance id i is unknown."}, None),
        ("", {"foo-0": "INVALID_GROUP_ID"}, ""),
        ("empty group", None, ""),
        ("empty group", {"foo-0": "NONE"}, None),
        ("", None, None),
    ],
)
def test_an_answer_may_name_the_group(note: str, response: object, group: str | None) -> None:
    assert hints.named_group(step(note, response)) == group


def test_a_group_that_was_not_there_was_another_one() -> None:
    assert hints.is_about_another_group(step("leave unknown group"))
    assert hints.is_about_another_group(step(response={"foo-0": "GROUP_ID_NOT_FOUND"}))
    assert not hints.is_about_another_group(step(response={"foo-0": "NONE"}))


def test_metadata_is_as_long_as_the_answer_tells() -> None:
    recorded = step(response={"foo-0": "OFFSET_METADATA_TOO_LARGE", "foo-1": "NONE"})
    assert len(hints.metadata_of(recorded, "foo-0")) == 4097
    assert hints.metadata_of(recorded, "foo-1") == hints.metadata_of(step(), "foo-0") == ""
