"""Writes records from executors; all replicas acknowledge them before a batch may end.

Jobs write whole batches with `send_records`; tasks that process records borrow a writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame

from spark_groups.errors import DeliveryError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.counts import COUNT_COLUMNS, FateCounts, counts_of
from spark_groups.spark.processing.kafka_record import Record, record_rows, records_of
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.strategies import Fate
from spark_groups.spark.reading.consumer_cache import LIBRDKAFKA_IDLE_S, ConsumerCache
from spark_groups.spark.source.arrow_map import map_in_arrow
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster_identity import ClusterIdentity

_log = logging.getLogger(__name__)

LARGEST_BYTES: Final = 1_000_000_000
"""librdkafka's upper bound, so that the broker's limit applies."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""As `buffer.memory` of Kafka's own producer."""
BY_KEY: Final = -1
"""librdkafka's partition number for a choice by its partitioner."""
_FULL_S: Final = 0.1
LetterRoute = Callable[[Record], Letter | str]
"""Returns the letter for a record, or the reason to leave it out."""


class RecordWriter:
    """An idempotent producer that acknowledges all records or raises.

    Args:
        settings: The connection; each record has `request_timeout_s` seconds to be written.
    """

    def __init__(self, settings: RangeSettings) -> None:
        self._settings = settings
        self._identity = ClusterIdentity(settings.cluster_id)
        self._written_to: str | None = None
        self._refused: list[str] = []
        self._waiting_bytes = 0
        self._partition_counts: dict[str, int] = {}
        configuration: dict[str, Any] = {
            **settings.security.librdkafka_settings(),
            "bootstrap.servers": ",".join(settings.bootstrap_servers),
            "client.id": settings.client_id,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(settings.request_timeout_s * 1000),
            "message.max.bytes": LARGEST_BYTES,
            # As in Kafka's own producer, so that records of one key stay together.
            "partitioner": "murmur2_random",
            "log_level": 3,
            "socket.keepalive.enable": True,
            "connections.max.idle.ms": settings.timeouts.max_idle_ms,
        }
        self._producer = Producer(configuration, logger=_log)

    def write(self, letter: Letter) -> None:
        """Send a record; block while too many bytes are unacknowledged.

        Raises:
            DeliveryError: This record cannot be sent, or an earlier one was not acknowledged.
        """
        partition = BY_KEY if letter.partition is None else letter.partition
        while True:
            try:
                self._producer.produce(
                    letter.topic,
                    key=letter.key,
                    value=letter.value,
                    partition=partition,
                    headers=list(letter.headers),
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                # Queued records succeed or fail within a bounded time, which frees space.
                self._producer.poll(_FULL_S)
            except KafkaException as error:
                raise DeliveryError(
                    f"a record for {letter.topic} cannot be sent: {error}"
                ) from error
        self._producer.poll(0)
        self._written_to = letter.topic
        self._waiting_bytes += len(letter.key or b"") + len(letter.value or b"")
        if self._waiting_bytes >= WAITING_BYTES_MAX:
            self.await_delivery()

    def route(self, route: LetterRoute) -> LetterRoute:
        """Return a route that leaves out letters which cannot be written."""

        def checked(record: Record) -> Letter | str:
            letter = route(record)
            return letter if isinstance(letter, str) else self.addressed(letter)

        return checked

    def addressed(self, letter: Letter) -> Letter | str:
        """Return a letter that can be written, or the reason why it cannot.

        The key decides where a letter goes whose partition does not exist.

        Args:
            letter: The letter.

        Raises:
            DeliveryError: The cluster does not answer.
        """
        if letter.topic not in self._partition_counts:
            try:
                # A request that names a topic could create it.
                found = self._producer.list_topics(timeout=self._settings.request_timeout_s)
            except KafkaException as error:
                raise DeliveryError(f"topics cannot be listed: {error}") from error
            self._partition_counts = {name: len(e.partitions) for name, e in found.topics.items()}
        count = self._partition_counts.get(letter.topic)
        if not count:
            return f"there is no topic {letter.topic}, or no right to see it"
        is_beyond = letter.partition is not None and letter.partition >= count
        return replace(letter, partition=None) if is_beyond else letter

    def await_delivery(self) -> None:
        """Wait until all in-sync replicas have acknowledged every record.

        Raises:
            DeliveryError: A record was refused, or not acknowledged in time, or another cluster has
                acknowledged it.
        """
        self._waiting_bytes = 0
        left = self._producer.flush(self._settings.request_timeout_s + 1)
        if left:
            self._refused.append(f"{left} records were not acknowledged in time")
        self._check_cluster()
        if self._refused:
            raise DeliveryError(
                f"records could not be written, so the batch fails: {self._refused[0]}"
                + (f", and {len(self._refused) - 1} more" if self._refused[1:] else "")
            )

    def _check_cluster(self) -> None:
        """Refuse the records that were written if the address leads to another cluster."""
        if self._written_to is None or self._refused:
            return
        try:
            found = self._producer.list_topics(
                self._written_to, timeout=self._settings.request_timeout_s
            )
        except KafkaException as error:
            self._refused.append(f"it is unknown where they are: {error}")
            return
        address = parse_bootstrap_servers(self._settings.bootstrap_servers)[0]
        refusal = self._identity.refusal(address, found.cluster_id)
        if refusal is not None:
            self._refused.append(refusal)

    def rest(self) -> None:
        """Do nothing: every record is acknowledged."""

    def close(self) -> None:
        """Drop unwritten records, and close the connections."""
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused.append(f"{message.topic()}: {error.str()}")


WRITERS: Final = ConsumerCache(RecordWriter, idle_s=LIBRDKAFKA_IDLE_S)


def send_records(
    batch: DataFrame, route: LetterRoute, connection: RangeSettings, *, is_replay: bool = False
) -> None:
    """Write the letter of each record of a batch, and wait for acknowledgement.

    Args:
        route: Called on executors, which log each record that it leaves out.
        is_replay: Whether letters to topics that do not exist are left out, and the key decides
            where those to partitions that do not exist go; else they fail the batch.

    Raises:
        PySparkException: A record could not be written.
    """
    send = _Sending(route, connection, is_replay).run
    for each in counts_of(map_in_arrow(record_rows(batch), send, COUNT_COLUMNS).collect()):
        if each.fate is Fate.SKIPPED:
            _log.warning("%s", each)


@dataclass(frozen=True, slots=True)
class _Sending:
    """The task of `send_records`; a nested function would be sent with a copy of `WRITERS`."""

    route: LetterRoute
    connection: RangeSettings
    is_replay: bool

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = FateCounts()
        with WRITERS.borrow(self.connection) as writer:
            route = writer.route(self.route) if self.is_replay else self.route
            for record in records_of(batches):
                letter = route(record)
                if isinstance(letter, str):
                    _log.warning("%s is not sent: %s", record, letter)
                    counts.add(record, Fate.SKIPPED, letter)
                    continue
                writer.write(letter)
                counts.add(record, Fate.PROCESSED)
            writer.await_delivery()
        yield counts.rows()
