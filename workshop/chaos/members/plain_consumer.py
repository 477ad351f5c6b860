"""A plain Kafka consumer of the same group, in a process of its own, by confluent-kafka.

It collects records, writes them to the same sinks as the queries, and commits after that. What it
holds is written and committed before it gives partitions up, and dropped when they are lost.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_groups.errors import TableGapError
from spark_groups.types import OffsetRange, parse_topic_id
from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.delivery import Delivery
from workshop.chaos.members.journal import Journal, Orders, Points
from workshop.chaos.members.query import failed_as
from workshop.chaos.plants import Plant
from workshop.chaos.results.facts import Note, Partition, RunKey, execution_name
from workshop.chaos.setting import Files, Setting
from workshop.chaos.systems.sinks import Row, SinkBatch

COLLECTED: Final = 100
"""How many records are written at once, at most; twenty times as many if batches are large."""
COLLECT_S: Final = 0.5
SLOW_COLLECT_S: Final = 2.0
POLL_S: Final = 0.1
COMMITS: Final = 5
"""How often a commit is tried whose epoch is not the member's any more."""
STALE_MEMBER_EPOCH: Final = 113


class PlainConsumer:
    """One run of a consumer.

    Args:
        setting: What all processes know.
        files: The files of the run.
        key: Which run of which member it is.
        is_classic: Whether it speaks the classic protocol, not that of KIP-848.
    """

    def __init__(
        self, setting: Setting, files: Files, key: RunKey, *, is_classic: bool = False
    ) -> None:
        self._setting = setting
        self._key = key
        self._ending = threading.Event()
        self._journal = Journal(files.journals, key)
        self._points = Points(self._journal, Orders(files.orders(key.member)))
        self._delivery = Delivery(setting, files, key.member, self._points)
        self._collected: list[Message] = []
        self._batch = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": setting.servers_of(key.member),
                "group.id": setting.group_id,
                **(_classic(setting) if is_classic else {"group.protocol": "consumer"}),
                "client.id": key.member,
                # Partitions added later must be read from their beginning.
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": setting.rebalance_timeout_ms,
            }
        )

    def work(self) -> None:
        """Read until SIGTERM."""
        signal.signal(signal.SIGTERM, lambda *_: self._ending.set())
        self._journal.note(Note.BEGINS, pid=os.getpid())
        self._consumer.subscribe(
            list(self._setting.subscribed),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        is_slow = self._setting.is_slow
        collect_s, most = (SLOW_COLLECT_S, 20 * COLLECTED) if is_slow else (COLLECT_S, COLLECTED)
        flush_by_s = time.monotonic() + collect_s
        while not self._ending.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None:
                self._take(message)
            if len(self._collected) >= most or time.monotonic() >= flush_by_s:
                self._write()
                flush_by_s = time.monotonic() + collect_s
        self._write()
        self._consumer.close()
        self._journal.note(Note.LEAVES)

    def fail(self, error: BaseException) -> None:
        """Note what the consumer died of, and leave the group."""
        if isinstance(error, TableGapError):
            self._journal.note(Note.GAP, error=str(error))
        self._journal.note(Note.FAILS, error=f"{type(error).__name__}: {error}")
        self._collected.clear()
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._collected.append(message)
        elif error.fatal():
            raise KafkaException(error)
        else:
            logging.info("%s", error)

    def _write(self) -> None:
        """Write the collected rows, then commit."""
        messages, self._collected = self._collected, []
        if not messages:
            return
        self._batch += 1
        execution = execution_name(self._key, self._batch)
        ranges = self._ranges(messages)
        plan = f"run {self._key.number}"
        partitions = [(offset_range.topic, offset_range.partition) for offset_range in ranges]
        self._journal.note(Note.PLANNED, batch=self._batch, plan=plan, partitions=partitions)
        self._journal.note_reads(self._batch, plan, ranges, is_replay=False)
        self._points.reach(Point.AFTER_READ)
        rows = tuple(Row(*_place(message), message.value()) for message in messages)
        batch = SinkBatch(execution, self._setting.group_id, self._batch, ranges, rows)
        self._journal.note(Note.WRITES, batch=self._batch)
        self._delivery.append(batch)
        steps: list[Callable[[], None]] = [
            partial(self._delivery.write, batch),
            partial(self._commit, ranges),
        ]
        for step in reversed(steps) if self._setting.plant is Plant.KAFKA_FIRST else steps:
            step()
        self._points.reach(Point.KAFKA_COMMIT_ACCEPTED)

    def _ranges(self, messages: Iterable[Message]) -> tuple[OffsetRange, ...]:
        spans: dict[Partition, tuple[int, int]] = {}
        for message in messages:
            topic, index, offset = _place(message)
            first, _ = spans.get((topic, index), (offset, offset))
            spans[topic, index] = first, offset + 1
        return tuple(
            OffsetRange(parse_topic_id(self._setting.topics[topic]), topic, index, first, until)
            for (topic, index), (first, until) in sorted(spans.items())
        )

    def _commit(self, ranges: Iterable[OffsetRange]) -> None:
        offsets = [TopicPartition(e.topic, e.partition, e.until_offset) for e in ranges]
        for attempt in range(1, COMMITS + 1):
            refused = self._refused(offsets)
            if refused is None:
                return
            if refused.code() != STALE_MEMBER_EPOCH or attempt == COMMITS:
                self._journal.note(Note.REFUSED, batch=self._batch, error=str(refused))
                return
            time.sleep(POLL_S)

    def _refused(self, offsets: list[TopicPartition]) -> KafkaError | None:
        """Commit; return why that was refused, in part or as a whole."""
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            refused: KafkaError = error.args[0]
            return refused
        return next((each.error for each in committed or () if each.error is not None), None)

    def _assigned(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._journal.note_partitions(Note.ASSIGNED, _named(partitions))

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._write()
        self._journal.note_partitions(Note.REVOKED, _named(partitions))

    def _lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        lost = set(_named(partitions))
        self._collected = [each for each in self._collected if _place(each)[:2] not in lost]
        self._journal.note_partitions(Note.LOST, lost)


def _classic(setting: Setting) -> dict[str, str | int]:
    """Return the settings that brokers have for members of the other protocol.

    An eager assignor: a group with librdkafka's cooperative one cannot be converted in all states,
    and Kafka may give a partition away before such a consumer has committed it (F84).
    """
    session_ms = round(setting.session_s * 1000)
    return {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // 5,
    }


def _place(message: Message) -> tuple[str, int, int]:
    topic, index, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert index is not None
    assert offset is not None
    return topic, index, offset


def _named(partitions: Iterable[TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]


def main(files: Files, key: RunKey, *, is_classic: bool = False) -> int:
    """Read until SIGTERM; return the exit code.

    Args:
        files: The files of the run.
        key: Which run of which member it is.
        is_classic: Whether it speaks the classic protocol.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.info("run %s, pid %d", key, os.getpid())
    consumer = PlainConsumer(Setting.load(files.directory), files, key, is_classic=is_classic)
    try:
        consumer.work()
    except Exception as error:
        logging.exception("the consumer failed")
        consumer.fail(error)
        return failed_as(error)
    return 0
