"""Shared by test_truncation.py and other tests."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic

from tests.clusters import ThreeBrokers
from workshop.parts.brokers import ANSWER_S, admin, await_partitions
from workshop.parts.waiting import wait_until

LEADER, LAGGARD = 1, 2


READ_BEFORE, LOST, WRITTEN_SINCE = 10, 5, 20


ELECTED_S = 120.0


def create_topic(cluster: ThreeBrokers, name: str) -> None:
    """Create a topic of two replicas that may be led by one that is behind."""
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(name, 1, replica_assignment=[[LEADER, LAGGARD]], config=config)
    client = admin(cluster.bootstrap_servers)
    client.create_topics([topic])[name].result(ANSWER_S)
    await_partitions(cluster.bootstrap_servers, name, 1)


def await_leader(cluster: ThreeBrokers, topic: str, leader: int, replicas_in_sync: int) -> None:
    client = admin(cluster.bootstrap_servers)

    def led() -> bool:
        found = client.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        return 0 in found and (found[0].leader, len(found[0].isrs)) == (leader, replicas_in_sync)

    wait_until(led, ELECTED_S, what=f"leader {leader} of {topic}, {replicas_in_sync} in sync")
