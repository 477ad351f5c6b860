"""Which topics need another look, and who is asked for which partition."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import Node, TopicMetadata
from spark_groups.types import TopicIdPartition
from spark_groups.wire import leaders as module
from spark_groups.wire.leaders import LeaderCache
from spark_groups.wire.topic_metadata import ClusterMetadata, KnownTopic, Leader

FLIGHTS, PLANES, SECRET = (uuid.UUID(int=each) for each in (1, 2, 3))
NODES = {each: Node(each, "h", each) for each in (1, 2)}


def metadata(*leaders: Leader, topic_id: uuid.UUID = FLIGHTS, **errors) -> ClusterMetadata:
    topic = TopicMetadata(topic_id, "flights", len(leaders))
    return ClusterMetadata(NODES, {topic_id: KnownTopic(topic, dict(enumerate(leaders)))}, **errors)


def test_an_id_is_checked_on_first_sight_and_when_the_check_is_old() -> None:
    cache = LeaderCache(max_age_s=60)
    assert cache.outdated({FLIGHTS}) == {FLIGHTS}
    cache.learn(metadata(Leader(1, 0)), {FLIGHTS, PLANES})
    assert cache.outdated({FLIGHTS, PLANES, SECRET}) == {SECRET}
    hasty = LeaderCache(max_age_s=-1)
    hasty.learn(metadata(Leader(1, 0)), {FLIGHTS})
    assert hasty.outdated({FLIGHTS}) == {FLIGHTS}


def test_partitions_go_to_their_leaders() -> None:
    cache = LeaderCache(max_age_s=60)
    denied = {SECRET: ErrorCode.TOPIC_AUTHORIZATION_FAILED.value}
    known = metadata(Leader(1, 0), Leader(2, 0), Leader(-1, 0), Leader(9, 0), id_errors=denied)
    cache.learn(known, {FLIGHTS, PLANES, SECRET})
    asked = [TopicIdPartition(FLIGHTS, index) for index in range(5)]
    others = [TopicIdPartition(PLANES, 0), TopicIdPartition(SECRET, 0)]
    by_leader, errors = cache.route([*asked, *others])
    assert by_leader == {1: [asked[0]], 2: [asked[1]]}
    assert errors == {
        asked[2]: ErrorCode.LEADER_NOT_AVAILABLE,
        asked[3]: ErrorCode.LEADER_NOT_AVAILABLE,
        asked[4]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        others[0]: ErrorCode.UNKNOWN_TOPIC_ID,
        others[1]: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_an_id_that_is_gone_stays_gone_until_it_is_asked_for_again() -> None:
    cache = LeaderCache(max_age_s=60)
    cache.learn(metadata(Leader(1, 0)), {FLIGHTS})
    cache.learn(metadata(Leader(1, 0), topic_id=PLANES), {FLIGHTS})
    _, errors = cache.route([TopicIdPartition(FLIGHTS, 0)])
    assert list(errors.values()) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_topics_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LeaderCache(max_age_s=60)
    cache.learn(metadata(Leader(1, 0)), {FLIGHTS})
    monkeypatch.setattr(module, "FORGET_AFTER_S", -1.0)
    cache.learn(metadata(Leader(1, 0), topic_id=PLANES))
    assert set(cache.topics) == {PLANES}
