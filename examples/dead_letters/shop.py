"""Writes a thousand orders, some of them damaged, or counts those that are booked.

python shop.py write
python shop.py count
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "orders"
DEAD_LETTERS = "orders.billing.dead-letter"
ORDERS = 1_000
COMMA_EVERY = 50
CUT_OFF_EVERY = 250
WAIT_S = 30.0


def main() -> None:
    """Write or count."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=["write", "count"])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    given = parser.parse_args()
    if given.what == "write":
        write(given.bootstrap_servers)
    else:
        with closing(sqlite3.connect("orders.db")) as database:
            [(booked,)] = database.execute("SELECT count(*) FROM orders")
        print(f"{booked} of {ORDERS} orders are booked")


def write(bootstrap_servers: str) -> None:
    """Create the topics, and write the orders."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(TOPIC, 2), NewTopic(DEAD_LETTERS, 1)]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    refused: list[str] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for number in range(ORDERS):
        producer.produce(TOPIC, key=str(number), value=order(number), on_delivery=acknowledged)
    if producer.flush(WAIT_S) or refused:
        raise SystemExit(f"orders were not acknowledged: {refused[:1]}")
    print(f"{ORDERS} orders written")


def order(number: int) -> bytes:
    """Return an order; some have a price with a decimal comma, and some are cut off."""
    price = f"{1 + number % 90}.{number % 100:02}"
    if number % COMMA_EVERY == 1:
        price = price.replace(".", ",")
    value = json.dumps({"id": number, "price": price}).encode()
    return value[:10] if number % CUT_OFF_EVERY == 2 else value


if __name__ == "__main__":
    main()
