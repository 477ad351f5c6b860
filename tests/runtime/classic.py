"""Consumers by confluent-kafka that read in a thread of their own, most of them classic."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError

from workshop.parts.waiting import LONG_S, wait_until

QUICK: Mapping[str, Any] = MappingProxyType(
    {
        "auto.commit.interval.ms": 200,
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 10_000,
    }
)


@dataclass(frozen=True, slots=True)
class Read:
    """A row that a consumer read, and when, in seconds of the wall clock."""

    partition: int
    offset: int
    at_s: float


class PlainConsumer:
    """A consumer that reads, commits what it read, and keeps account of it.

    Args:
        bootstrap_servers: The broker.
        group_id: The group.
        topic: The topic.
        settings: Further settings of confluent-kafka.
    """

    def __init__(
        self, bootstrap_servers: str, group_id: str, topic: str, settings: Mapping[str, Any]
    ) -> None:
        self.reads: list[Read] = []
        """Every row it read, in order."""
        self.partitions: set[int] = set()
        """The partitions it has now."""
        self.errors: list[KafkaError] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **settings,
            }
        )
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    @property
    def rows(self) -> set[tuple[int, int]]:
        """Partition and offset of every row it read."""
        return {(each.partition, each.offset) for each in list(self.reads)}

    def await_partitions(self, count: int) -> None:
        """Wait until it has so many partitions."""
        wait_until(lambda: len(self.partitions) == count, what=f"{count} partitions of a consumer")

    def __enter__(self) -> PlainConsumer:
        self._consumer.subscribe([self._topic])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, once."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(LONG_S)
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
            self.reads.append(Read(message.partition() or 0, message.offset() or 0, time.time()))


class ClassicConsumer(PlainConsumer):
    """A consumer of the classic protocol.

    Args:
        bootstrap_servers: The broker.
        group_id: The group.
        topic: The topic.
        strategy: Its `partition.assignment.strategy`.
        timing: Its timeouts and intervals; those of librdkafka if empty.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topic: str,
        strategy: str = "cooperative-sticky",
        timing: Mapping[str, Any] = QUICK,
    ) -> None:
        classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
        super().__init__(bootstrap_servers, group_id, topic, {**classic, **timing})
