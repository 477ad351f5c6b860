"""Batches that are written to Kafka as they are, for jobs: everything, before the batch ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record import Record, record_rows, records_of
from spark_groups.spark.processing.record_writer import WRITERS
from spark_groups.spark.processing.strategies import Fate
from spark_groups.spark.processing.tally import TALLY_COLUMNS, Tally, counts_of

logger = logging.getLogger(__name__)

Route = Callable[[Record], Letter | None]


def send_records(batch: DataFrame, route: Route, connection: RangeSettings) -> None:
    """Write what becomes of each record of a batch, and wait until it is acknowledged.

    Args:
        batch: Rows with the columns of Spark's Kafka source.
        route: Makes a letter of a record, on executors; None: it is left out, and that is logged.
        connection: How the cluster is connected to that is written to.

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
            logger.warning("%s", each)
