"""A member by confluent-kafka for workshop/benchmarks/handover.py; runs as a process of its own.

    python -m workshop.benchmarks.handover_consumer DIRECTORY BOOTSTRAP GROUP TOPIC INSTANCE \
        PROTOCOL

INSTANCE is an instance id, or empty. PROTOCOL is `consumer` (KIP-848) or `classic`
(cooperative-sticky). SIGTERM ends it in good order.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from workshop.parts.handover_diary import Diary


def main(directory: str, servers: str, group_id: str, topic: str, *further: str) -> None:
    """Read with confluent-kafka until SIGTERM; only the protocol differs from its defaults."""
    instance_id, protocol = further
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group_id,
        "group.protocol": protocol,
        "auto.offset.reset": "latest",
    }
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    if instance_id:
        settings["group.instance.id"] = instance_id
    diary = Diary(Path(directory))
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    diary.note("joining")
    while not ending:
        messages = [each for each in consumer.consume(500, 0.05) if not each.error()]
        if messages:
            diary.note("rows", {message.partition() for message in messages})
    consumer.close()
    diary.note("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
