"""Consumers of the classic protocol, by confluent-kafka, that read in a thread of their own."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaError

from tests.waiting import wait_until


class ClassicConsumer:
    """A plain consumer that reads, commits what it read, and keeps account of it.

    Args:
        bootstrap_servers: The broker.
        group_id: The group.
        topic: The topic.
        strategy: Its `partition.assignment.strategy`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topic: str,
        strategy: str = "cooperative-sticky",
    ) -> None:
        self.rows: set[tuple[int, int]] = set()
        """Partition and offset of every row it read."""
        self.partitions: set[int] = set()
        """The partitions it has now."""
        self.errors: list[KafkaError] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group_id,
                "group.protocol": "classic",
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def await_partitions(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until it has so many partitions."""
        wait_until(
            lambda: len(self.partitions) == count, timeout_s, f"{count} partitions of a consumer"
        )

    def __enter__(self) -> ClassicConsumer:
        self._consumer.subscribe([self._topic])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, once."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(30)
            self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.05)
            self.partitions = {each.partition for each in self._consumer.assignment()}
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(error)
                continue
            self.rows.add((message.partition() or 0, message.offset() or 0))
