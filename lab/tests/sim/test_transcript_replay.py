"""Playing steps: time, topics that become known, heartbeats that are repeated, other groups."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from group_lab.coordinator.profile import KAFKA_4_3
from group_lab.coordinator.settings import BrokerSettings
from group_lab.sim import transcript_replay
from group_lab.sim.transcript_replay import TranscriptNames, TranscriptReplay
from group_lab.sim.transcripts import Step, read_transcript
from spark_groups.types import TopicIdPartition

JOIN = {"member": "m1", "epoch": 0, "topics": ["foo"], "owned": {}, "rebal": 30_000}


class Lag:
    """Ids that count up, and changes of topics that are known after so many requests."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self._numbers = itertools.count(1)

    def getrandbits(self, k: int, /) -> int:
        return next(self._numbers) if k == 128 else self.requests


@pytest.fixture
def replay() -> TranscriptReplay:
    return TranscriptReplay(KAFKA_4_3, Lag(0))


def play(replay: TranscriptReplay, operation: str, request: Any, **line: Any) -> Any:
    (step,) = read_transcript(json.dumps({"op": operation, "req": request, **line}))
    return replay.play(step)


@pytest.mark.parametrize("requests", [0, 1, 2, 3])
def test_change_of_topics_is_known_after_some_requests_or_a_moment(requests: int) -> None:
    replay = TranscriptReplay(KAFKA_4_3, Lag(requests))
    play(replay, "create-topics", {"foo": 1}, _t=0.5)
    assert play(replay, "hb", JOIN, _t=0.5)["asg"] == {"foo": [0]}
    play(replay, "create-partitions", {"foo": 2}, _t=0.6)
    beat = {"member": "m1", "epoch": 2}
    for _ in range(min(requests, 2)):
        assert play(replay, "hb", beat, _t=0.6)["asg"] is None
    answer = play(replay, "hb", beat, _t=0.6 if requests < 3 else 0.7)
    assert answer["asg"] == {"foo": [0, 1]}


def test_time_never_goes_back(replay: TranscriptReplay) -> None:
    play(replay, "note", {}, _t=3.0)
    play(replay, "sleep", {}, _t=1.0)
    assert replay.now == 3.0
    play(replay, "sleep", {})
    assert replay.now == 3.0
    play(replay, "sleep", -2)
    assert replay.now == 3.0


def test_sleep_lasts_as_long_as_it_says_where_no_line_tells_the_time(
    replay: TranscriptReplay,
) -> None:
    play(replay, "create-topics", {"foo": 2})
    play(replay, "hb", JOIN)
    play(replay, "sleep", 3.5)
    assert play(replay, "hb", {"member": "m1", "epoch": 2})["err"] == "NONE"
    play(replay, "sleep", {"seconds": 4})
    assert play(replay, "hb", {"member": "m1", "epoch": 2})["err"] == "UNKNOWN_MEMBER_ID"


def test_fetch_without_partitions_is_one_of_all(replay: TranscriptReplay) -> None:
    play(replay, "create-topics", {"foo": 2, "bar": 1})
    commit = {"epoch": -1, "offsets": {"foo-1": 5, "bar-0": 6}}
    play(replay, "commit", commit)
    fetched = play(replay, "fetch", {"epoch": -1})
    assert fetched == {"err": "NONE", "offsets": {"bar-0": 6, "foo-1": 5}}
    assert play(replay, "fetch", {"epoch": -1, "parts": {}})["offsets"] == {}


def test_fetch_of_no_member_is_not_one_of_a_member_without_a_name(
    replay: TranscriptReplay,
) -> None:
    play(replay, "create-topics", {"foo": 2})
    play(replay, "hb", JOIN)
    fetch = {"parts": {"foo": [0]}}
    assert play(replay, "fetch", fetch)["err"] == "NONE"
    assert play(replay, "fetch", {**fetch, "epoch": 2})["err"] == "UNKNOWN_SERVER_ERROR"
    assert play(replay, "fetch", {**fetch, "member": ""})["err"] == "UNKNOWN_MEMBER_ID"


def test_metadata_is_too_long_for_partitions_that_the_recorded_answer_refuses(
    replay: TranscriptReplay,
) -> None:
    play(replay, "create-topics", {"foo": 2})
    answer = {"foo-0": "OFFSET_METADATA_TOO_LARGE", "foo-1": "NONE"}
    commit = {"epoch": -1, "offsets": {"foo-0": 5, "foo-1": 6}}
    assert play(replay, "commit", commit, resp=answer) == answer
    assert play(replay, "fetch", {"epoch": -1})["offsets"] == {"foo-1": 6}


def test_repeated_heartbeat_keeps_a_member_alive(replay: TranscriptReplay) -> None:
    play(replay, "create-topics", {"foo": 2}, _t=0.0)
    play(replay, "hb", JOIN, _t=0.0)
    play(replay, "hb", {**JOIN, "member": "m2"}, _t=0.0)
    answer = play(replay, "hb", {"member": "m2"}, _t=4.05, note="m2 receives after 4 s of silence")
    assert (answer["epoch"], answer["asg"]) == (4, {"foo": [0, 1]})


def test_news_that_come_long_before_the_end_are_not_the_answer(replay: TranscriptReplay) -> None:
    play(replay, "create-topics", {"foo": 2}, _t=0.0)
    play(replay, "hb", JOIN, _t=0.0)
    play(replay, "create-partitions", {"foo": 3}, _t=0.0)
    answer = play(replay, "hb-until", {"member": "m1", "epoch": 2}, _t=1.0, note="11 heartbeats")
    assert answer["err"] == "FENCED_MEMBER_EPOCH"


@pytest.mark.parametrize(
    ("note", "response", "message"),
    [
        ("unknown group", {"msg": "Group other not found."}, "Consumer group other not found."),
        ("another epoch", {"msg": "Group other not found."}, "Consumer group other not found."),
        ("no group", {"msg": "GroupId can't be empty."}, "GroupId can't be empty."),
        ("empty group", None, "GroupId can't be empty."),
        ("empty group", {"err": "NONE"}, "Consumer group g not found."),
        ("unknown group", {}, "Consumer group g not found."),
    ],
)
def test_answer_or_note_tells_that_another_group_is_meant(
    replay: TranscriptReplay, note: str, response: dict[str, str] | None, message: str
) -> None:
    request = {"member": "m1", "epoch": 5}
    assert play(replay, "hb", request, note=note, resp=response)["msg"] == message


def test_group_that_is_not_named_is_the_group_from_there_on(replay: TranscriptReplay) -> None:
    play(replay, "create-topics", {"foo": 1})
    play(replay, "hb", JOIN)
    assert play(replay, "describe", {})["state"] == "Stable"
    commit = {"member": None, "epoch": -1, "offsets": {"foo-0": 1}}
    assert play(replay, "commit", commit, note="to an unknown group") == {"foo-0": "NONE"}
    assert play(replay, "list", {})["groups"] == [["g", "", "Empty", "classic"]]
    assert play(replay, "describe", {"group": "g"})["state"] == "Stable"


def test_group_that_stays_unknown_is_not_the_group_from_there_on(
    replay: TranscriptReplay,
) -> None:
    play(replay, "create-topics", {"foo": 1})
    play(replay, "hb", JOIN)
    commit = {"member": "m1", "epoch": 2, "offsets": {"foo-0": 1}}
    answer = {"foo-0": "GROUP_ID_NOT_FOUND"}
    assert play(replay, "commit", commit, note="to an unknown group") == answer
    assert play(replay, "commit", commit, resp=answer) == answer
    assert play(replay, "commit", commit) == {"foo-0": "NONE"}


def test_answers_of_requests_by_id_name_the_topic_as_it_is_called_then(
    replay: TranscriptReplay,
) -> None:
    play(replay, "create-topics", {"foo": 1}, _t=0.0)
    play(replay, "hb", JOIN, _t=0.0)
    play(replay, "delete-topics", ["foo"], _t=0.0)
    commit = {"member": "m1", "epoch": 2, "offsets": {"foo-0": 1}}
    by_name = play(replay, "commit", commit, _t=0.1)
    by_id = play(replay, "commit", {**commit, "v": 10}, _t=0.1)
    assert by_name == {"foo-0": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert by_id == {"foo(old)-0": "UNKNOWN_TOPIC_ID"}


def test_topics_that_are_not_there_can_neither_grow_nor_go(replay: TranscriptReplay) -> None:
    play(replay, "create-topics", {"foo": 1})
    answer = {"foo": "NONE", "bar": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert play(replay, "create-partitions", {"foo": 2, "bar": 2}) == answer
    assert play(replay, "delete-topics", ["foo", "bar"]) == answer
    assert play(replay, "hb", JOIN)["asg"] == {}


@pytest.fixture
def names() -> TranscriptNames:
    return TranscriptNames(random.Random(1))


def test_member_has_one_id(names: TranscriptNames) -> None:
    first = names.member_id("m1")
    assert names.member_id("m1") == first
    assert names.member(first) == "m1"
    assert names.member_id("m2") != first
    assert names.member_id(None) == names.member_id("") == ""


def test_member_id_without_a_name_was_made_by_the_coordinator(names: TranscriptNames) -> None:
    assert names.member("from the coordinator") == "gen"
    assert names.member_id("gen") == "from the coordinator"


def test_topic_that_is_created_again_is_another_one(names: TranscriptNames) -> None:
    old = names.created("foo")
    names.deleted("foo")
    assert names.key("foo-0") == names.key("foo(old)-0") == TopicIdPartition(old, 0)
    assert names.topic(old) == "foo(old)"
    new = names.created("foo")
    assert names.key("foo-1") == TopicIdPartition(new, 1)
    assert names.key("foo(old)-1") == TopicIdPartition(old, 1)
    assert (names.topic(new), names.topic(old)) == ("foo", "foo(old)")


def test_partitions_are_sorted_by_topic_name(names: TranscriptNames) -> None:
    keys = [names.key(text) for text in ("foo-1", "bar-2", "foo-0")]
    assert list(names.partitions(keys).items()) == [("bar", [2]), ("foo", [0, 1])]


def test_message_has_names(names: TranscriptNames) -> None:
    text = f"Member {names.member_id('m1')} was fenced by {names.member_id('m2')}."
    assert names.text(text) == "Member m1 was fenced by m2."


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
    broker = transcript_replay.broker_of(steps)
    assert broker.max_size == max_size
    assert broker.session_timeout_s == 4.0


def test_a_note_may_count_heartbeats() -> None:
    assert (
        transcript_replay.heartbeats(step("resolved after 0.12s, 2 heartbeats, matched=True")) == 2
    )
    assert transcript_replay.heartbeats(step("resolved")) is None


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
    assert transcript_replay.named_group(step(note, response)) == group


def test_a_group_that_was_not_there_was_another_one() -> None:
    assert transcript_replay.is_about_another_group(step("leave unknown group"))
    assert transcript_replay.is_about_another_group(step(response={"foo-0": "GROUP_ID_NOT_FOUND"}))
    assert not transcript_replay.is_about_another_group(step(response={"foo-0": "NONE"}))


def test_metadata_is_as_long_as_the_answer_tells() -> None:
    recorded = step(response={"foo-0": "OFFSET_METADATA_TOO_LARGE", "foo-1": "NONE"})
    assert len(transcript_replay.metadata_of(recorded, "foo-0")) == 4097
    assert (
        transcript_replay.metadata_of(recorded, "foo-1")
        == transcript_replay.metadata_of(step(), "foo-0")
        == ""
    )
