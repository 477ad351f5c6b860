"""Shared by test_observe.py and other tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import Consumer

from workshop.parts.waiting import wait_until


@contextlib.contextmanager
def classic_member(bootstrap_servers: str, group_id: str, topic: str) -> Iterator[Consumer]:
    """Be a member of a classic group; it is assigned partitions when this begins."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "group.protocol": "classic",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])

        def assigned() -> bool:
            consumer.poll(0.05)
            return bool(consumer.assignment())

        wait_until(assigned, what="an assignment of the classic member")
        yield consumer
    finally:
        consumer.close()
