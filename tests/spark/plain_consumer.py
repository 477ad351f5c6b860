"""A Kafka consumer of the new protocol that is nothing but that; runs as a process of its own.

    python -m tests.spark.plain_consumer BOOTSTRAP GROUP TOPIC FILE

Appends a line "partition offset" to FILE for each row it reads, commits after that, and leaves on
SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from confluent_kafka import Consumer


def main(bootstrap_servers: str, group_id: str, topic: str, path: str) -> None:
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "plain-consumer",
        }
    )
    consumer.subscribe([topic])
    with Path(path).open("a", encoding="ascii") as rows:
        while not ending:
            messages = [each for each in consumer.consume(500, 0.2) if not each.error()]
            rows.writelines(f"{each.partition()} {each.offset()}\n" for each in messages)
            rows.flush()
            if messages:
                consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
