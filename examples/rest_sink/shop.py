"""Writes ten thousand orders to the topic, or counts those that the service has.

python shop.py write
python shop.py count --at-least 1000
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from store import Service

TOPIC = "orders"
ORDERS = 10_000
WAIT_S = 30.0
ARRIVAL_S = 300.0


def main() -> None:
    """Write or count."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=["write", "count"])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--at-least", type=int, default=0, help="Wait for so many.")
    given = parser.parse_args()
    if given.what == "write":
        write(given.bootstrap_servers)
        return
    deadline_s = time.monotonic() + ARRIVAL_S
    while (counted := Service().count())["orders"] < given.at_least:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"only {counted['orders']} orders after {ARRIVAL_S:g} s")
        time.sleep(0.1)
    if given.at_least:
        print(f"the service has {given.at_least} orders or more")
    else:
        print(f"{counted['orders']} orders, {counted['different']} of them different")


def write(bootstrap_servers: str) -> None:
    """Create the topic, and write the orders."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(TOPIC, 2)]).values():
        created.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    refused: list[str] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for number in range(ORDERS):
        value = f'{{"id": {number}}}'
        producer.produce(TOPIC, key=str(number), value=value, on_delivery=acknowledged)
    if producer.flush(WAIT_S) or refused:
        raise SystemExit(f"orders were not acknowledged: {refused[:1]}")
    print(f"{ORDERS} orders written")


if __name__ == "__main__":
    main()
