"""A Structured Streaming query as a real, fenced member of a Kafka consumer group (KIP-848)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    simulate: Any
    from spark_groups.broker.embedded import EmbeddedKafka
    from spark_groups.cli.functions import config, groups, lag, preflight, remove
    from spark_groups.errors import GroupNotFoundError, QueryStartError, UnprocessableError
    from spark_groups.observation.observe import describe
    from spark_groups.spark.control.application_query import await_end, start
    from spark_groups.spark.control.figures import figures
    from spark_groups.spark.control.listener import GroupListener, PartitionsMoved, listen
    from spark_groups.spark.processing.kafka_record import Record
    from spark_groups.spark.processing.process import RecordProcessing, process_records
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
    from spark_groups.spark.source.foreach_batch_rows import foreach_batch_rows
    from spark_groups.spark.source.registration import register
    from spark_groups.spark.tables.delta import delta_table
    from spark_groups.spark.tables.iceberg import iceberg_table
    from spark_groups.spark.tables.own import own_table
    from spark_groups.spark.tables.postgres import postgres_table
    from spark_groups.spark.tables.sqlite import sqlite_table
    from spark_groups.spark.tables.write import TableWriter, write_table
    from spark_groups.wire.security.bearer_token import BearerToken

__all__ = [
    "AtLast",
    "BearerToken",
    "EmbeddedKafka",
    "Fate",
    "GroupListener",
    "GroupNotFoundError",
    "NoDeadline",
    "PartitionsMoved",
    "ProgressDeadline",
    "QueryStartError",
    "Recirculate",
    "Record",
    "RecordProcessing",
    "Relinquish",
    "RetryTo",
    "SkipOrDeadLetter",
    "TableWriter",
    "UnprocessableError",
    "await_end",
    "config",
    "delta_table",
    "describe",
    "figures",
    "foreach_batch_rows",
    "groups",
    "iceberg_table",
    "lag",
    "listen",
    "own_table",
    "postgres_table",
    "preflight",
    "process_records",
    "register",
    "remove",
    "sqlite_table",
    "start",
    "write_table",
]

_NAMES = {
    "spark_groups.errors": ("GroupNotFoundError", "QueryStartError", "UnprocessableError"),
    "spark_groups.broker.embedded": ("EmbeddedKafka",),
    "spark_groups.observation.observe": ("describe",),
    "spark_groups.cli.functions": ("config", "groups", "lag", "preflight", "remove"),
    "spark_groups.spark.control.application_query": ("await_end", "start"),
    "spark_groups.spark.control.figures": ("figures",),
    "spark_groups.spark.control.listener": ("GroupListener", "PartitionsMoved", "listen"),
    "spark_groups.spark.processing.process": ("RecordProcessing", "process_records"),
    "spark_groups.spark.processing.kafka_record": ("Record",),
    "spark_groups.spark.processing.strategies": (
        "AtLast",
        "Fate",
        "NoDeadline",
        "ProgressDeadline",
        "Recirculate",
        "Relinquish",
        "RetryTo",
        "SkipOrDeadLetter",
    ),
    "spark_groups.spark.source.foreach_batch_rows": ("foreach_batch_rows",),
    "spark_groups.spark.source.registration": ("register",),
    "spark_groups.spark.tables.delta": ("delta_table",),
    "spark_groups.spark.tables.iceberg": ("iceberg_table",),
    "spark_groups.spark.tables.own": ("own_table",),
    "spark_groups.spark.tables.postgres": ("postgres_table",),
    "spark_groups.spark.tables.sqlite": ("sqlite_table",),
    "spark_groups.spark.tables.write": ("TableWriter", "write_table"),
    "spark_groups.wire.security.bearer_token": ("BearerToken",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_OF_LABORATORY = ("simulate",)


def __getattr__(name: str) -> object:
    if name in _OF_LABORATORY:
        extensions = import_module("spark_groups.extensions")
        return extensions.load(extensions.FUNCTIONS, name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    extensions = import_module("spark_groups.extensions")
    return sorted({*globals(), *__all__, *extensions.installed(extensions.FUNCTIONS)})
