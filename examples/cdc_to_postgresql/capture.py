"""Changes customers of the shop, and writes each change to the topic `shop.customers`.

    python capture.py --changes 20000

It stands in for a shop and for Debezium: the events have the format of Debezium's connector for
PostgreSQL without schemas. The topic is compacted, with three partitions.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "shop.customers"
PARTITIONS = 3
# Kafka compacts all segments but the newest: short segments are compacted soon.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}
CUSTOMERS = 2_000
CITIES = ("Bergen", "Genoa", "Lisbon", "Riga", "Utrecht")
WAIT_S = 30.0


class Customer(NamedTuple):
    """A row of the shop's table."""

    id: int
    name: str
    city: str


class Change(NamedTuple):
    """The row before and after a change; None where there is none."""

    before: Customer | None
    after: Customer | None


def main() -> None:
    """Make changes, or wait for compaction."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--changes", type=int, default=0, help="Changes to make.")
    parser.add_argument("--per-second", type=int, default=2_000, help="Changes a second.")
    parser.add_argument(
        "--await-compaction",
        action="store_true",
        help="Wait until compaction has removed half of the records.",
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="Of that wait."
    )
    given = parser.parse_args()
    create_topic(given.bootstrap_servers)
    if given.changes:
        capture(given.bootstrap_servers, given.changes, given.per_second)
    if given.await_compaction:
        await_compaction(given.bootstrap_servers, time.monotonic() + given.timeout)


def capture(bootstrap_servers: str, changes: int, per_second: int) -> None:
    """Change the shop's table, and write the events in the same order."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    refused: list[str] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    with psycopg.connect("dbname=shop") as shop:
        table = {row[0]: Customer(*row) for row in shop.execute("SELECT * FROM shop.customers")}
        begin_s = time.monotonic()
        for number, change in enumerate(drawn(table, changes)):
            apply(shop, change)
            for key, value in events(change):
                producer.produce(TOPIC, key=key, value=value, on_delivery=acknowledged)
            producer.poll(0)
            time.sleep(max(0.0, begin_s + number / per_second - time.monotonic()))
    if producer.flush(WAIT_S) or refused:
        raise SystemExit(f"changes were not acknowledged: {refused[:1]}")
    print(f"{changes} changes captured, {len(table)} customers")


def drawn(table: dict[int, Customer], changes: int) -> Iterator[Change]:
    """Yield random changes of a table, which follows them."""
    chance = random.Random(changes)
    for number in range(changes):
        id_ = chance.randrange(CUSTOMERS)
        before = table.get(id_)
        if before is not None and chance.random() < 0.1:
            del table[id_]
            yield Change(before, None)
        else:
            after = Customer(id_, f"customer {id_}, version {number}", chance.choice(CITIES))
            table[id_] = after
            yield Change(before, after)


def apply(shop: psycopg.Connection, change: Change) -> None:
    """Make a change in the shop's table."""
    if change.after is None:
        assert change.before is not None
        shop.execute("DELETE FROM shop.customers WHERE id = %s", [change.before.id])
    else:
        shop.execute(
            "INSERT INTO shop.customers VALUES (%s, %s, %s)"
            " ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, city = EXCLUDED.city",
            change.after,
        )


def events(change: Change) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values that Debezium writes for a change."""
    row = change.after or change.before
    assert row is not None
    key = json.dumps({"id": row.id}).encode()
    operation = "d" if change.after is None else "c" if change.before is None else "u"
    before, after = (each and each._asdict() for each in change)
    yield key, json.dumps({"before": before, "after": after, "op": operation}).encode()
    if change.after is None:
        # It lets compaction remove the key.
        yield key, None


def await_compaction(bootstrap_servers: str, deadline_s: float) -> None:
    """Wait until compaction has removed half of the records."""
    while True:
        left, ends = records(bootstrap_servers, deadline_s)
        if left <= ends / 2:
            print(f"{left} of {ends} records are left after compaction")
            return
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{left} of {ends} records are left: the topic is not compacted")
        time.sleep(2)


def records(bootstrap_servers: str, deadline_s: float) -> tuple[int, int]:
    """Return how many records the topic has, and how many were written to it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "capture",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
    ends = sum(consumer.get_watermark_offsets(each, WAIT_S)[1] for each in places)
    consumer.assign(places)
    left, at_end = 0, set()
    while len(at_end) < PARTITIONS and time.monotonic() < deadline_s:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                left += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    consumer.close()
    if len(at_end) < PARTITIONS:
        raise SystemExit("the topic was not read in time")
    return left, ends


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic, unless it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=COMPACTED)])[TOPIC].result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


if __name__ == "__main__":
    main()
