"""Three real nodes: one of them is killed, stands still, or restarts, and the others continue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from spark_groups.errors import EmbeddedKafkaError
from workshop.parts.brokers import ANSWER_S, admin, await_partitions, produce
from workshop.parts.kafka_cluster import ClusterState, EmbeddedCluster, PartitionState, node_state
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

FAILOVER_S = 120.0
ALL = frozenset({1, 2, 3})


def in_sync(leader: int = 1, missing: int = 0) -> ClusterState:
    partition = PartitionState(leader, ALL, ALL - {missing})
    return ClusterState(ALL - {missing}, {("ants", 0): partition})


def test_cluster_is_in_sync_if_every_node_serves_every_replica() -> None:
    assert in_sync().is_in_sync(ALL)
    assert not in_sync(missing=2).is_in_sync(ALL)
    assert not in_sync(missing=2).is_in_sync({1, 3}), "a replica is missing"
    assert not in_sync(leader=-1).is_in_sync(ALL)


def test_more_replicas_in_sync_than_nodes_are_refused() -> None:
    with pytest.raises(EmbeddedKafkaError, match="1 to 3"):
        EmbeddedCluster(min_in_sync=4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three nodes that these tests may stop and kill."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """A topic with a replica of each partition on each node, all in sync."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    client = admin(cluster.bootstrap_servers)
    client.create_topics([NewTopic(name, 3)])[name].result(ANSWER_S)
    await_partitions(cluster.bootstrap_servers, name, 3)
    cluster.await_in_sync()
    return name


def leader(cluster: EmbeddedCluster, topic: str) -> int:
    """Return the leader of the first partition, -1 while it has none."""
    state = cluster.state()
    return state.partitions[topic, 0].leader if state is not None else -1


def write(cluster: EmbeddedCluster, topic: str, count: int = 20) -> None:
    produce(cluster.bootstrap_servers, topic, [b"row"] * count, {"acks": "all"})


@pytest.mark.broker
def test_every_partition_has_a_replica_on_each_node(cluster: EmbeddedCluster, topic: str) -> None:
    for node in cluster.nodes.values():
        state = node_state(node)
        assert state is not None
        assert state.brokers == ALL
        found = [state.partitions[topic, index] for index in range(3)]
        assert {each.replicas for each in found} == {ALL}
        assert {each.leader for each in found} == ALL, "leaders are spread"


@pytest.mark.broker
def test_topic_stays_writable_while_a_node_is_killed(cluster: EmbeddedCluster, topic: str) -> None:
    killed = leader(cluster, topic)
    address = cluster.nodes[killed].bootstrap_servers
    cluster.nodes[killed].kill()
    assert cluster.nodes[killed].pid is None
    write(cluster, topic)
    # The write may need no partition of that node: its session ends only a while later.
    wait_until(lambda: leader(cluster, topic) not in (-1, killed), FAILOVER_S, "another leader")
    cluster.nodes[killed].start()
    cluster.await_in_sync(FAILOVER_S)
    assert cluster.nodes[killed].bootstrap_servers == address
    write(cluster, topic)


@pytest.mark.broker
def test_node_that_stands_still_loses_its_partitions_and_catches_up(
    cluster: EmbeddedCluster, topic: str
) -> None:
    frozen = leader(cluster, topic)
    cluster.nodes[frozen].pause()
    try:
        wait_until(lambda: leader(cluster, topic) not in (-1, frozen), FAILOVER_S, "another leader")
        write(cluster, topic)
    finally:
        cluster.nodes[frozen].resume()
    cluster.await_in_sync(FAILOVER_S)


@pytest.mark.broker
def test_all_nodes_are_restarted_in_turn(cluster: EmbeddedCluster, topic: str) -> None:
    write(cluster, topic)
    before = {node.pid for node in cluster.nodes.values()}
    cluster.roll()
    assert not before & {node.pid for node in cluster.nodes.values()}
    write(cluster, topic)


@pytest.mark.broker
def test_nothing_is_left_of_a_stopped_cluster() -> None:
    cluster = EmbeddedCluster(min_in_sync=1)
    cluster.start()
    with pytest.raises(EmbeddedKafkaError, match="runs already"):
        cluster.start()
    pids = [node.pid for node in cluster.nodes.values()]
    folders = [node.log_dir for node in cluster.nodes.values()]
    cluster.nodes[2].pause()
    cluster.stop()
    assert not any(is_alive(pid) for pid in pids if pid is not None)
    assert not any(folder.exists() for folder in folders)
    assert cluster.state() is None
