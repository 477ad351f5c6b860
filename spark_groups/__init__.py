"""A Structured Streaming query as a real, fenced member of a Kafka consumer group (KIP-848)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_groups.kafka.embedded import EmbeddedKafka
    from spark_groups.spark.batch_rows import foreach_batch_rows
    from spark_groups.spark.figures import figures
    from spark_groups.spark.listener import GroupListener, PartitionsMoved, listen
    from spark_groups.spark.registration import register

__all__ = [
    "EmbeddedKafka",
    "GroupListener",
    "PartitionsMoved",
    "figures",
    "foreach_batch_rows",
    "listen",
    "register",
]

_HOMES = {
    "EmbeddedKafka": "spark_groups.kafka.embedded",
    "GroupListener": "spark_groups.spark.listener",
    "PartitionsMoved": "spark_groups.spark.listener",
    "figures": "spark_groups.spark.figures",
    "foreach_batch_rows": "spark_groups.spark.batch_rows",
    "listen": "spark_groups.spark.listener",
    "register": "spark_groups.spark.registration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
