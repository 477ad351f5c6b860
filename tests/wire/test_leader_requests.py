"""What the leaders of partitions answer, on a real broker; one request to each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.protocol.messages import (
    LATEST_TIMESTAMP,
    EpochEnd,
    EpochLookup,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    TopicMetadata,
)
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.topic_metadata import ClusterMetadata, KnownTopic, Leader
from tests.brokers import create_topic, produce
from tests.waiting import wait_until
from tests.wire.test_coordinator import topic_id

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
        lambda: (found := cluster.list_offsets(request)).offsets and found, what="an end"
    )
    assert (answer.offsets[key], answer.leader_epochs[key]) == (3, 0)
    return key


def ends(cluster: Cluster, lookups: dict[TopicIdPartition, EpochLookup]):
    answer = cluster.epoch_ends(OffsetForLeaderEpochRequest(lookups=lookups))
    return answer.ends, answer.errors


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
