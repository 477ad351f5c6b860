"""Loads rows into a topic of a real broker, and shows the progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.flights import Flight

ANSWER_S = 30.0
_LINES = 4
"""How many progress lines plain output has."""


class LoadError(Exception):
    """Rows were refused, or not acknowledged in time."""


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic with one replica.

    Args:
        bootstrap_servers: The broker.
        topic: Its name.
        partitions: How many partitions it has.
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    created = client.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=ANSWER_S)
    created[topic].result(ANSWER_S)


def load(
    bootstrap_servers: str,
    topic: str,
    flights: Iterable[Flight],
    rows: int,
    console: Console | None = None,
) -> int:
    """Produce flights and wait until all are acknowledged.

    Args:
        bootstrap_servers: The broker.
        topic: An existing topic.
        flights: The rows.
        rows: How many there will be.
        console: Where progress is shown; None: it is not.

    Returns:
        How many were acknowledged.

    Raises:
        LoadError: Some were not.
    """
    acknowledged = 0
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            # Errors only: a broker that has just started may say "not yet" once or twice.
            "log_level": 3,
        }
    )
    for flight in _shown(flights, rows, console):
        while True:
            try:
                producer.produce(topic, flight.value, flight.key, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(ANSWER_S)
    if left or refused:
        raise LoadError(f"{left} rows were not acknowledged, {len(refused)} refused {refused[:1]}")
    return acknowledged


def _shown(flights: Iterable[Flight], rows: int, console: Console | None) -> Iterator[Flight]:
    if console is None:
        yield from flights
    elif not console.is_terminal:
        for count, flight in enumerate(flights, start=1):
            yield flight
            if count % max(1, rows // _LINES) == 0:
                console.print(f"loaded {count:,} of {rows:,} flights")
    else:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task("loading flights", total=rows)
            for count, flight in enumerate(flights, start=1):
                yield flight
                if count % 1000 == 0:
                    bar.update(task, completed=count)
