"""What the leaders of partitions answer, on a real broker; one request to each of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    EpochEnd,
    EpochLookup,
    ListOffsetsRequest,
    Node,
    OffsetForLeaderEpochRequest,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.types import LATEST_TIMESTAMP, TopicIdPartition
from spark_groups.wire import leader_requests as module
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.leader_requests import LeaderCache
from spark_groups.wire.topic_metadata import ClusterMetadata, KnownTopic, Leader
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as opened:
        yield opened


def filled(cluster: Cluster, kafka: EmbeddedKafka, topic_name: str) -> TopicIdPartition:
    """Return a partition with three records, once its end is known."""
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"1"] * 3)
    key = TopicIdPartition(topic_id(cluster, topic_name), 0)
    request = ListOffsetsRequest(partitions=frozenset({key}), timestamp_ms=LATEST_TIMESTAMP)
    answer = wait_until(
        lambda: found_and_failed(cluster.list_offsets(request).answers)[0], what="an end"
    )
    assert answer == {key: (3, 0)}
    return key


def ends(cluster: Cluster, lookups: dict[TopicIdPartition, EpochLookup]):
    answer = cluster.epoch_ends(OffsetForLeaderEpochRequest(lookups=lookups))
    return found_and_failed(answer.answers)


def test_the_epoch_of_the_leader_ends_where_the_log_ends(kafka, cluster, topic_name) -> None:
    key = filled(cluster, kafka, topic_name)
    assert ends(cluster, {key: EpochLookup(0, 0)}) == ({key: EpochEnd(3, 0)}, {})
    assert ends(cluster, {}) == ({}, {})


def test_leader_that_is_older_than_the_one_asked_for_does_not_answer(
    kafka, cluster, topic_name
) -> None:
    key = filled(cluster, kafka, topic_name)
    refused = ends(cluster, {key: EpochLookup(0, 1)})
    assert refused == ({}, {key: ErrorCode.UNKNOWN_LEADER_EPOCH})


@pytest.mark.parametrize("wrong", [Leader(1, 99), Leader(-1, 0), Leader(77, 0)], ids=str)
def test_outdated_leaders_are_looked_up_again(kafka, cluster, topic_name, wrong: Leader) -> None:
    key = filled(cluster, kafka, topic_name)
    known = KnownTopic(TopicMetadata(key.topic_id, topic_name, 1), {0: wrong})
    cluster._leaders.learn(ClusterMetadata(cluster._leaders.nodes, {key.topic_id: known}))
    assert ends(cluster, {key: EpochLookup(0, 0)}) == ({key: EpochEnd(3, 0)}, {})


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


def test_topics_without_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LeaderCache(max_age_s=60)
    cache.learn(metadata(Leader(1, 0)), {FLIGHTS})
    monkeypatch.setattr(module, "FORGET_AFTER_S", -1.0)
    cache.learn(metadata(Leader(1, 0), topic_id=PLANES))
    assert set(cache.topics) == {PLANES}
