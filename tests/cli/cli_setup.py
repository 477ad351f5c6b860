"""Shared by test_cli.py and other tests."""

from __future__ import annotations

from spark_groups.broker.embedded import EmbeddedKafka

CONSUMER_GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def kafkas_own(kafka: EmbeddedKafka, group_id: str) -> dict[int, tuple[str, ...]]:
    """Return committed offset, log end, lag and member id by partition, as Kafka's tool has it."""
    text = kafka.run_tool(
        CONSUMER_GROUP_COMMAND,
        *("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group_id),
    )
    rows = (line.split() for line in text.splitlines() if line.startswith(group_id))
    return {int(row[2]): (row[3], row[4], row[5], row[6]) for row in rows}


def as_kafka_writes(value: object) -> str:
    return "-" if value is None else str(value)
