"""Shared by test_shutdown.py and other tests."""

from __future__ import annotations

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed
from workshop.parts.brokers import ANSWER_S, admin


def committed_offsets(kafka: EmbeddedKafka, group_id: str) -> dict[int, int]:
    found = committed(kafka.bootstrap_servers, group_id)
    return {index: offset for (_, index), offset in found.items()}


def member_count(kafka: EmbeddedKafka, group_id: str) -> int:
    # Without its client a future is never answered.
    client = admin(kafka.bootstrap_servers)
    (answer,) = client.describe_consumer_groups([group_id]).values()
    return len(answer.result(ANSWER_S).members)


def unwanted_lines(text: str) -> list[str]:
    """Return lines that alarm somebody who only ended an application."""
    alarming = (" ERROR ", "Traceback", "at org.apache.spark", "Exception", "\tat ")
    return [each for each in text.splitlines() if any(word in each for word in alarming)]
