"""Offsets that Spark's own Kafka source writes: next offsets by topic and partition, as JSON.

    {"flights": {"0": 7, "1": 9}}

Source: org.apache.spark.sql.kafka010.JsonUtils.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_groups.types import EARLIEST_TIMESTAMP, TopicPartition


def sparks_kafka_offsets(value: object) -> dict[TopicPartition, int] | None:
    """Return the offsets in a JSON value, None if Spark's own Kafka source did not write it."""
    if not isinstance(value, dict) or not value:
        return None
    found: dict[TopicPartition, int] = {}
    for topic, offsets in value.items():
        if not isinstance(offsets, dict) or not offsets:
            return None
        for partition, offset in offsets.items():
            is_number = partition.isascii() and partition.isdecimal()
            if not is_number or type(offset) is not int or offset < 0:
                return None
            found[TopicPartition(topic, int(partition))] = offset
    return found


def as_starting_offsets(
    offsets: Mapping[TopicPartition, int], others: Iterable[TopicPartition] = ()
) -> dict[str, dict[str, int]]:
    """Return offsets as `startingOffsets` of Spark's own Kafka source takes them.

    Args:
        offsets: The next offset of each partition.
        others: Further partitions, which start at their beginning: the source wants each partition
            of a topic named.
    """
    written: dict[str, dict[str, int]] = {}
    for name in sorted({*offsets, *others}):
        written.setdefault(name.topic, {})[str(name.partition)] = offsets.get(
            name, EARLIEST_TIMESTAMP
        )
    return written
