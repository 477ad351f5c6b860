"""Writes the clicks of a web shop to the topic `clicks`, which it creates with six partitions.

    python produce.py --seconds 60

`--seconds 0` only creates the topic.
"""

from __future__ import annotations

import argparse
import io
import random
import time
from datetime import datetime, timezone
from pathlib import Path

import fastavro
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "clicks"
SCHEMA = fastavro.schema.load_schema(Path(__file__).with_name("click.avsc"))
PARTITIONS = 6
PAGES = ("/", "/search", "/shoes", "/shirts", "/basket", "/checkout")
WEIGHTS = (30, 25, 20, 15, 7, 3)
USERS = 500
UNREADABLE_EVERY = 1_000
WAIT_S = 30.0


def main() -> None:
    """Write clicks at a rate; fail if one is not acknowledged."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long to write.")
    parser.add_argument("--per-second", type=int, default=1_000, help="Clicks a second.")
    given = parser.parse_args()
    create_topic(given.bootstrap_servers)
    producer = Producer({"bootstrap.servers": given.bootstrap_servers, "enable.idempotence": True})
    refused: list[str] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    total, begin_s = round(given.seconds * given.per_second), time.monotonic()
    for number in range(total):
        user, value = click(random.Random(number), number)
        producer.produce(TOPIC, key=user, value=value, on_delivery=acknowledged)
        producer.poll(0)
        time.sleep(max(0.0, begin_s + number / given.per_second - time.monotonic()))
    if producer.flush(WAIT_S) or refused:
        raise SystemExit(f"clicks were not acknowledged: {refused[:1]}")
    print(f"{total} clicks written")


def click(chance: random.Random, number: int) -> tuple[str, bytes]:
    """Return the user and the Avro of a click; some of them are cut off."""
    user = f"user-{chance.randrange(USERS)}"
    at = datetime.now(timezone.utc)
    page = chance.choices(PAGES, WEIGHTS)[0]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, {"user": user, "page": page, "clicked_at": at})
    value = out.getvalue()
    return user, value[:10] if number % UNREADABLE_EVERY == 0 else value


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic, unless it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


if __name__ == "__main__":
    main()
