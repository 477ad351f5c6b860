"""Topics and rows on a real broker, by confluent-kafka."""

from __future__ import annotations

import os
import socket
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from spark_groups.group.member.messages import found_and_failed
from spark_groups.wire.cluster import Cluster
from workshop.parts.waiting import wait_until

ANSWER_S = 120.0
SHORT_SESSION = {
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""The settings of a broker that soon removes a member that was killed, and none that is late."""
TIMESTAMP_TYPES = {
    "CreateTime": TIMESTAMP_CREATE_TIME,
    "LogAppendTime": TIMESTAMP_LOG_APPEND_TIME,
}


@dataclass(frozen=True)
class Row:
    """One row to produce.

    Args:
        value: Its value; None is a tombstone.
        key: Its key.
        partition: The topic partition; None lets the key decide.
        timestamp_ms: Its timestamp; None is now.
        headers: Its headers.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


def admin(bootstrap_servers: str) -> AdminClient:
    """Return an admin client that does not log to the terminal."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and return when all its partitions have a leader."""
    client = admin(bootstrap_servers)
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    client.create_topics([topic], operation_timeout=ANSWER_S)[name].result(ANSWER_S)
    await_partitions(bootstrap_servers, name, partitions)


def grow_topic(bootstrap_servers: str, name: str, partitions: int) -> None:
    """Give a topic more partitions and return when all of them have a leader."""
    client = admin(bootstrap_servers)
    client.create_partitions([NewPartitions(name, partitions)])[name].result(ANSWER_S)
    await_partitions(bootstrap_servers, name, partitions)


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Delete a topic and return when it is not listed any more."""
    client = admin(bootstrap_servers)
    client.delete_topics([name], operation_timeout=ANSWER_S)[name].result(ANSWER_S)
    wait_until(
        lambda: name not in client.list_topics(timeout=ANSWER_S).topics,
        what=f"the end of topic {name}",
    )


def await_partitions(bootstrap_servers: str, name: str, partitions: int) -> None:
    """Wait until a topic has so many partitions, each with a leader."""
    client = admin(bootstrap_servers)

    def led() -> bool:
        topic = client.list_topics(timeout=ANSWER_S).topics.get(name)
        if topic is None:
            return False
        return [partition.leader >= 0 for partition in topic.partitions.values()] == [
            True
        ] * partitions

    wait_until(led, what=f"leaders of the {partitions} partitions of {name}")


def numbered_topic(bootstrap_servers: str, topic: str, partitions: int, rows: int) -> None:
    """Create a topic whose values are the numbers from 0 on, as text."""
    create_topic(bootstrap_servers, topic, partitions)
    produce(bootstrap_servers, topic, (b"%d" % each for each in range(rows)))


def produce(
    bootstrap_servers: str,
    topic: str,
    rows: Iterable[bytes | Row],
    config: Mapping[str, str | int | float | bool] | None = None,
) -> None:
    """Write rows, in order per topic partition, and return when all are acknowledged."""
    refused: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "linger.ms": 5,
            "enable.idempotence": True,
            **(config or {}),
        }
    )
    for each in rows:
        row = each if isinstance(each, Row) else Row(each)
        optional: dict[str, int] = {}
        if row.partition is not None:
            optional["partition"] = row.partition
        if row.timestamp_ms is not None:
            optional["timestamp"] = row.timestamp_ms
        while True:
            try:
                producer.produce(
                    topic,
                    value=row.value,
                    key=row.key,
                    headers=list(row.headers),
                    on_delivery=lambda error, _: refused.append(str(error)) if error else None,
                    **optional,
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(ANSWER_S)
    assert not left, f"{left} rows of {topic} were not acknowledged"
    assert not refused, f"{len(refused)} rows of {topic} were refused: {refused[0]}"


def stamp(bootstrap_servers: str, topic: str, timestamp_type: str) -> None:
    """Have a topic's records get other timestamps, and return when its next ones do.

    Args:
        bootstrap_servers: The broker.
        topic: The topic; its first partition gets some rows more.
        timestamp_type: CreateTime or LogAppendTime.
    """
    entry = ConfigEntry(
        "message.timestamp.type",
        timestamp_type,
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = admin(bootstrap_servers)
    client.incremental_alter_configs([resource])[resource].result(ANSWER_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def is_stamped() -> bool:
        kinds: list[int] = []
        producer.produce(
            topic,
            b"stamp",
            partition=0,
            on_delivery=lambda _, message: kinds.append(message.timestamp()[0]),
        )
        assert not producer.flush(ANSWER_S)
        return kinds == [TIMESTAMP_TYPES[timestamp_type]]

    wait_until(is_stamped, what=f"{timestamp_type} in {topic}")


def produce_batch(bootstrap_servers: str, topic: str, partition: int, batch: bytes) -> int:
    """Send a batch as it is, in a request written after the protocol guide; return the error."""
    version, acks = 7, -1

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    body = struct.pack(">hhi", 0, version, 1) + text("test") + struct.pack(">hhi", -1, acks, 9000)
    body += struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    host, port = bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(error)


@contextmanager
def unstable_offset(
    bootstrap_servers: str, group_id: str, topic: str, partition: int, offset: int
) -> Iterator[Callable[[], None]]:
    """Send an offset of a group in a transaction that stays open, until the yielded call.

    Meanwhile OffsetFetch answers UNSTABLE_OFFSET_COMMIT. The call aborts the transaction, so that
    the offset before it stands.
    """
    settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    producer = Producer({**settings, "transactional.id": str(uuid.uuid4())})
    consumer = Consumer({**settings, "group.id": group_id})
    is_open = True

    def abort() -> None:
        nonlocal is_open
        if is_open:
            is_open = False
            producer.abort_transaction(ANSWER_S)
            wait_until(is_stable, what="the end of the transaction in the group's offsets")

    def is_stable() -> bool:
        with Cluster(bootstrap_servers) as cluster:
            _, failed = found_and_failed(cluster.fetch_all_offsets(group_id))
        return not failed

    try:
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        sent = [TopicPartition(topic, partition, offset)]
        producer.send_offsets_to_transaction(sent, consumer.consumer_group_metadata(), ANSWER_S)
        yield abort
    finally:
        abort()
        consumer.close()


@contextmanager
def jvm_options(options: str) -> Iterator[None]:
    """Give options to the JVMs that are started in the block."""
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = options
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before
