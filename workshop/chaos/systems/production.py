"""Writes records while a run lasts: each says where it belongs, and has a checksum."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from workshop.chaos.results.facts import Partition
from workshop.chaos.systems.record import record_value

TICK_S: Final = 0.05
BURST: Final = 40
"""One tick in so many writes half of what so many should: all others write half of their share."""
FILLING_BYTES_MAX: Final = 100
FLUSH_S: Final = 120.0
_AGAIN_S: Final = 0.1


class Production:
    """Writes to all partitions, at a steady rate with bursts, until it is stopped.

    Args:
        bootstrap_servers: The broker.
        topics: Partition counts by name.
        per_second: How many records are written in a second, if the broker takes them.
        seed: What partitions and sizes are drawn from.
        mark: What the topics in the records end with: they belong nowhere else.
        value: Returns a value for a topic, a partition, a sequence number and a filling.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Mapping[str, int],
        per_second: float,
        seed: int,
        mark: str = "",
        *,
        value: Callable[[str, int, int, str], bytes] = record_value,
    ) -> None:
        self._mark = mark
        self._value = value
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                # With several at once, a leader's change may write records twice (librdkafka#4953).
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._lock = threading.Lock()
        self._sequences = {(name, p): 0 for name, count in topics.items() for p in range(count)}
        self._per_second = per_second
        self._chance = random.Random(f"records {seed}")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="chaos-producer", daemon=True)
        self.acknowledged = 0
        self.problems: list[str] = []
        """What must not be: records that were refused, or are not where they belong."""

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def add(self, partitions: Iterable[Partition]) -> None:
        """Write to further partitions, too."""
        with self._lock:
            self._sequences.update(dict.fromkeys(partitions, 0))

    def stop(self) -> None:
        """Write no more, and wait until everything is acknowledged."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(FLUSH_S)
        if left := self._producer.flush(FLUSH_S):
            self.problems.append(f"{left} records were not acknowledged within {FLUSH_S:g} s")

    def _work(self) -> None:
        try:
            due = 0.0
            while not self._ended.wait(TICK_S):
                share = BURST / 2 if self._chance.random() < 1 / BURST else 0.5
                due += TICK_S * self._per_second * share
                while due >= 1 and not self._ended.is_set():
                    self._write_one()
                    due -= 1
                self._producer.poll(0)
        except Exception as error:
            self.problems.append(f"the producer died: {error!r}")
            raise

    def _write_one(self) -> None:
        with self._lock:
            topic, index = self._chance.choice(list(self._sequences))
            sequence = self._sequences[topic, index]
        filling = os.urandom(self._chance.randint(0, FILLING_BYTES_MAX)).hex()
        value = self._value(topic + self._mark, index, sequence, filling)
        while not self._is_taken(topic, index, sequence, value):
            if self._ended.is_set():
                return
            self._producer.poll(_AGAIN_S)
        with self._lock:
            self._sequences[topic, index] = sequence + 1

    def _is_taken(self, topic: str, index: int, sequence: int, value: bytes) -> bool:
        """Pass a record to the client; return whether it accepted it."""

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            self.acknowledged += error is None
            place = f"record {sequence} of {topic}-{index}"
            if error is not None:
                self.problems.append(f"{place} was refused: {error}")
            elif message.offset() != sequence:
                self.problems.append(f"{place} is at offset {message.offset()}")

        try:
            self._producer.produce(topic, value, partition=index, on_delivery=acknowledged)
        except BufferError:
            return False
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            # The client does not know a new partition yet.
            self._producer.list_topics(topic, timeout=FLUSH_S)
            return False
        return True
