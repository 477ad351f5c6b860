"""A Structured Streaming query as a real, fenced member of a Kafka consumer group (KIP-848)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_groups.errors import GroupNotFoundError, UnprocessableError
    from spark_groups.lab.broker.embedded import EmbeddedKafka
    from spark_groups.lab.commands.simulation import simulate
    from spark_groups.observation.observe import describe
    from spark_groups.spark.control.figures import figures
    from spark_groups.spark.control.listener import GroupListener, PartitionsMoved, listen
    from spark_groups.spark.processing.process import RecordProcessing, process_records
    from spark_groups.spark.processing.record import Record
    from spark_groups.spark.processing.strategies import (
        AtLast,
        Fate,
        NoDeadline,
        ProgressDeadline,
        Recirculate,
        Relinquish,
        RetryTo,
        SkipOrDeadLetter,
    )
    from spark_groups.spark.source.batch_rows import foreach_batch_rows
    from spark_groups.spark.source.registration import register
    from spark_groups.spark.tables.delta import delta_table
    from spark_groups.spark.tables.iceberg import iceberg_table
    from spark_groups.spark.tables.write import write_table

__all__ = [
    "AtLast",
    "EmbeddedKafka",
    "Fate",
    "GroupListener",
    "GroupNotFoundError",
    "NoDeadline",
    "PartitionsMoved",
    "ProgressDeadline",
    "Recirculate",
    "Record",
    "RecordProcessing",
    "Relinquish",
    "RetryTo",
    "SkipOrDeadLetter",
    "UnprocessableError",
    "delta_table",
    "describe",
    "figures",
    "foreach_batch_rows",
    "iceberg_table",
    "listen",
    "process_records",
    "register",
    "simulate",
    "write_table",
]

_HOMES = {
    "AtLast": "spark_groups.spark.processing.strategies",
    "EmbeddedKafka": "spark_groups.lab.broker.embedded",
    "Fate": "spark_groups.spark.processing.strategies",
    "GroupListener": "spark_groups.spark.control.listener",
    "GroupNotFoundError": "spark_groups.errors",
    "NoDeadline": "spark_groups.spark.processing.strategies",
    "PartitionsMoved": "spark_groups.spark.control.listener",
    "ProgressDeadline": "spark_groups.spark.processing.strategies",
    "Recirculate": "spark_groups.spark.processing.strategies",
    "Record": "spark_groups.spark.processing.record",
    "RecordProcessing": "spark_groups.spark.processing.process",
    "Relinquish": "spark_groups.spark.processing.strategies",
    "RetryTo": "spark_groups.spark.processing.strategies",
    "SkipOrDeadLetter": "spark_groups.spark.processing.strategies",
    "UnprocessableError": "spark_groups.errors",
    "delta_table": "spark_groups.spark.tables.delta",
    "describe": "spark_groups.observation.observe",
    "figures": "spark_groups.spark.control.figures",
    "foreach_batch_rows": "spark_groups.spark.source.batch_rows",
    "iceberg_table": "spark_groups.spark.tables.iceberg",
    "listen": "spark_groups.spark.control.listener",
    "process_records": "spark_groups.spark.processing.process",
    "register": "spark_groups.spark.source.registration",
    "simulate": "spark_groups.lab.commands.simulation",
    "write_table": "spark_groups.spark.tables.write",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
