"""Writing records from executors: acknowledged by all replicas before a batch may end.

`send_records` writes whole batches for jobs; tasks that process records borrow a writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame

from spark_groups.errors import DeliveryError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record import Record, record_rows, records_of
from spark_groups.spark.processing.strategies import Fate
from spark_groups.spark.processing.tally import TALLY_COLUMNS, Tally, counts_of
from spark_groups.spark.reading.consumer_cache import ConsumerCache

_log = logging.getLogger(__name__)

LARGEST_BYTES: Final = 1_000_000_000
"""librdkafka's upper bound: how large a record may be is for the broker to say."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""As `buffer.memory` of Kafka's own producer: what waits for longer than it may is an error."""
BY_KEY: Final = -1
"""librdkafka's word for a partition that its partitioner chooses."""
_FULL_S: Final = 0.1
Route = Callable[[Record], Letter | None]
"""Makes a letter of a record; None: it is left out."""


class RecordWriter:
    """An idempotent producer, whose records are all acknowledged or an error.

    Args:
        settings: The connection; each record has `request_timeout_s` seconds to be written.
    """

    def __init__(self, settings: RangeSettings) -> None:
        self._settings = settings
        self._refused: list[str] = []
        self._waiting_bytes = 0
        configuration: dict[str, Any] = {
            **settings.security.librdkafka_settings(),
            "bootstrap.servers": ",".join(settings.bootstrap_servers),
            "client.id": settings.client_id,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(settings.request_timeout_s * 1000),
            "message.max.bytes": LARGEST_BYTES,
            # As Kafka's own producers choose: records of one key stay together.
            "partitioner": "murmur2_random",
            "log_level": 3,
        }
        self._producer = Producer(configuration, logger=_log)

    def write(self, letter: Letter) -> None:
        """Send a record on its way; where much waits already, until that is acknowledged.

        Raises:
            DeliveryError: It cannot be sent, or one before it was not acknowledged.
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
                # What waits is written, or refused, in a bounded time: then there is room.
                self._producer.poll(_FULL_S)
            except KafkaException as error:
                raise DeliveryError(
                    f"a record for {letter.topic} cannot be sent: {error}"
                ) from error
        self._producer.poll(0)
        self._waiting_bytes += len(letter.key or b"") + len(letter.value or b"")
        if self._waiting_bytes >= WAITING_BYTES_MAX:
            self.await_delivery()

    def await_delivery(self) -> None:
        """Wait until everything is acknowledged by all replicas in sync.

        Raises:
            DeliveryError: Something is not, in time or for good.
        """
        self._waiting_bytes = 0
        left = self._producer.flush(self._settings.request_timeout_s + 1)
        if left:
            self._refused.append(f"{left} records were not acknowledged in time")
        if self._refused:
            raise DeliveryError(
                f"records could not be written, so the batch must not end: {self._refused[0]}"
                + (f", and {len(self._refused) - 1} more" if self._refused[1:] else "")
            )

    def rest(self) -> None:
        """Wait for the next task: everything is written."""

    def close(self) -> None:
        """Drop what was not written, and the connections with it."""
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused.append(f"{message.topic()}: {error.str()}")


WRITERS: Final = ConsumerCache(RecordWriter)
"""The writers of this worker process, kept between its tasks."""


def send_records(batch: DataFrame, route: Route, connection: RangeSettings) -> None:
    """Write what becomes of each record of a batch, and wait until it is acknowledged.

    Args:
        route: Called on executors; returns None for a record to leave out, which is logged.

    Raises:
        PySparkException: Something could not be written.
    """

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        with WRITERS.borrow(connection) as writer:
            for record in records_of(batches):
                letter = route(record)
                if letter is None:
                    tally.add(record, Fate.SKIPPED, "its headers do not say where it came from")
                    continue
                writer.write(letter)
                tally.add(record, Fate.PROCESSED)
            writer.await_delivery()
        yield tally.rows()

    for each in counts_of(record_rows(batch).mapInArrow(send, TALLY_COLUMNS).collect()):
        if each.fate is Fate.SKIPPED:
            _log.warning("%s", each)
