"""A cluster of three real brokers on this host."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.broker.properties import LISTENER, random_cluster_id
from spark_groups.group.member.messages import FindCoordinatorRequest
from spark_groups.wire.cluster import Cluster
from workshop.parts.brokers import ANSWER_S, admin, await_partitions
from workshop.parts.waiting import wait_until

NODE_IDS = (1, 2, 3)
READY_S = 300.0
OFFSETS_PARTITIONS = 3
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

REPLICATED: Mapping[str, str] = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A controller that is killed is replaced within about as long as a broker.
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


def rack_of(node_id: int) -> str:
    """Return where a node stands: each has a rack of its own."""
    return f"rack-{node_id}"


class ThreeBrokers:
    """Three nodes, each broker and controller, that one node may leave at a time.

    Args:
        server_properties: Broker properties of all nodes that override anything else.
    """

    def __init__(self, server_properties: Mapping[str, str] | None = None) -> None:
        ports = free_ports(2 * len(NODE_IDS))
        clients = dict(zip(NODE_IDS, ports[: len(NODE_IDS)], strict=True))
        controllers = dict(zip(NODE_IDS, ports[len(NODE_IDS) :], strict=True))
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in controllers.items())
        cluster_id = random_cluster_id()
        self.nodes = {
            node_id: EmbeddedKafka(
                port=clients[node_id],
                cluster_id=cluster_id,
                heap_mb=64,
                start_timeout_s=READY_S,
                server_properties={
                    **REPLICATED,
                    "node.id": str(node_id),
                    "broker.rack": rack_of(node_id),
                    "controller.quorum.voters": voters,
                    "listeners": f"{LISTENER}://127.0.0.1:{clients[node_id]}"
                    f",CONTROLLER://127.0.0.1:{controllers[node_id]}",
                    **(server_properties or {}),
                },
            )
            for node_id in NODE_IDS
        }
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in clients.values())

    def __enter__(self) -> ThreeBrokers:
        try:
            # None of them is ready before most of them are there.
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(EmbeddedKafka.start, self.nodes.values()))
            self.await_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all nodes at once: an orderly end would wait for a quorum that is gone."""
        for node in self.nodes.values():
            with contextlib.suppress(Exception):
                node.kill()
        for node in self.nodes.values():
            node.stop()

    def await_all(self) -> None:
        """Wait until all nodes are alive and no replica is behind."""
        client = admin(self.bootstrap_servers)

        def in_sync() -> bool:
            metadata = client.list_topics(timeout=ANSWER_S)
            partitions = [
                p for topic in metadata.topics.values() for p in topic.partitions.values()
            ]
            return len(metadata.brokers) == len(self.nodes) and all(
                each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in partitions
            )

        wait_until(in_sync, READY_S, what="three brokers, all in sync")

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic that two of the three nodes keep going."""
        client = admin(self.bootstrap_servers)
        client.create_topics([NewTopic(name, partitions, 3)])[name].result(ANSWER_S)
        await_partitions(self.bootstrap_servers, name, partitions)

    def coordinator_of(self, group_id: str) -> EmbeddedKafka:
        """Return the node that coordinates a group."""

        def found() -> int | None:
            with Cluster(self.bootstrap_servers) as cluster:
                response = cluster.find_coordinator(FindCoordinatorRequest(group_id=group_id))
            return response.coordinator.node_id if response.coordinator else None

        return self.nodes[wait_until(found, what=f"a coordinator of {group_id}")]

    def move_group(self, group_id: str) -> None:
        """Let another node lead the partition that keeps a group, all nodes being there."""
        partition = offsets_partition(group_id)
        before = self.coordinator_of(group_id)
        client = admin(self.bootstrap_servers)
        topic = client.list_topics("__consumer_offsets", timeout=ANSWER_S).topics
        replicas = topic["__consumer_offsets"].partitions[partition].replicas
        leader = next(each for each, node in self.nodes.items() if node is before)
        first = [each for each in replicas if each != leader]
        moved = {"topic": "__consumer_offsets", "partition": partition}
        plan = before.log_dir / "reassignment.json"
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{**moved, "replicas": [*first, leader]}]})
        )
        servers = ("--bootstrap-server", self.bootstrap_servers)
        before.run_tool(REASSIGN, *servers, "--reassignment-json-file", str(plan), "--execute")
        elected = [TopicPartition("__consumer_offsets", partition)]
        client.elect_leaders(ElectionType.PREFERRED, elected).result(ANSWER_S)


def offsets_partition(group_id: str) -> int:
    """Return the partition of __consumer_offsets that keeps a group: Java's hash of its id."""
    hashed = 0
    for character in group_id:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % OFFSETS_PARTITIONS
