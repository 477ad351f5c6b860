"""A consumer of the classic protocol, as confluent-kafka has it."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.05


class ClassicConsumer:
    """A member with the classic protocol and fast heartbeats.

    Args:
        bootstrap_servers: The broker.
        client_id: What it is called.
        group_id: The group.
        topic: What it subscribes to.
        strategy: `partition.assignment.strategy`.
    """

    def __init__(
        self, bootstrap_servers: str, client_id: str, group_id: str, topic: str, strategy: str
    ) -> None:
        self._consumer: Consumer | None = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": client_id,
                "group.id": group_id,
                "group.protocol": "classic",
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 20_000,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> dict[str, tuple[int, ...]]:
        """Poll for a moment and return its partitions by topic."""
        if self._consumer is None:
            return {}
        self._consumer.poll(POLL_S)
        assigned: list[TopicPartition] = self._consumer.assignment()
        by_topic: dict[str, list[int]] = {}
        for each in assigned:
            by_topic.setdefault(each.topic, []).append(each.partition)
        return {topic: tuple(sorted(indexes)) for topic, indexes in by_topic.items()}

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
