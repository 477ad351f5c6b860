"""What stands in topics, and records whose function fails as a test wants it to."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from spark_groups.spark.processing.kafka_record import Record
from workshop.parts.brokers import ANSWER_S, admin

Handle = Callable[[Record], None]


def records_in(bootstrap_servers: str, topic: str) -> list[Record]:
    """Return the records of a topic, those of each partition in their order.

    Args:
        bootstrap_servers: The broker.
        topic: The topic.
    """
    count = len(admin(bootstrap_servers).list_topics(topic, ANSWER_S).topics[topic].partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(count)])
    found: list[Record] = []
    ended = 0
    deadline_s = time.monotonic() + ANSWER_S
    while ended < count:
        assert time.monotonic() < deadline_s, f"{topic} cannot be read"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            ended += 1
            continue
        headers = tuple(message.headers() or ())
        place = (topic, message.partition(), message.offset(), message.timestamp()[1])
        found.append(Record(message.key(), message.value(), *place, headers))
    consumer.close()
    return sorted(found, key=lambda each: (each.partition, each.offset))


class Seen:
    """What functions of applications have processed; they note it in files.

    Args:
        directory: Where those lie.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def offsets(self) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of each record, in the order of processing."""
        return [(topic, int(index), int(offset)) for topic, index, offset, _ in self._lines()]

    def values(self) -> Counter[bytes]:
        """Return how often each value was processed."""
        return Counter(value.encode() for *_, value in self._lines())

    def _lines(self) -> list[list[str]]:
        lines = [line for path in self.directory.iterdir() for line in path.read_text().split("\n")]
        return [line.split(" ") for line in lines if line]

    def noting(self, fail: Callable[[Record], object]) -> Handle:
        """Return a function that notes each record for which another one raises nothing.

        Args:
            fail: Called before; travels to executors.
        """
        directory = str(self.directory)

        def handle(record: Record) -> None:
            fail(record)
            value = (record.value or b"").decode()
            with open(f"{directory}/{os.getpid()}", "a", encoding="utf-8") as notes:
                notes.write(f"{record.topic} {record.partition} {record.offset} {value}\n")

        return handle


def poisoned(values: Iterable[bytes]) -> Callable[[Record], None]:
    """Return a function that raises for some values.

    Args:
        values: Which.
    """
    bad = frozenset(values)

    def fail(record: Record) -> None:
        if record.value in bad:
            raise ValueError("poison")

    return fail
