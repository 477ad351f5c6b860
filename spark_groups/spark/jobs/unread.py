"""The records that a group has not read yet, looked at by the driver alone.

`spark.read.format("kafka-group")` gives the same as a DataFrame, of a group that there is already:
this is for few records, and for a group that is yet to read its first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_groups.errors import OptionsError
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.record import Record
from spark_groups.spark.reading.consumers import librdkafka_settings


def unread(options: SourceOptions) -> Iterator[Record]:
    """Return the records that a group has not read yet; nobody joins, and nothing is committed.

    Raises:
        OptionsError: Topics are not named, or there is none of that name.
        KafkaException: No broker answered in time.
    """
    if options.subscription.topic_regex is not None:
        raise OptionsError("what is only looked at has to be named: set subscribe, not a pattern")
    settings = options.range_settings()
    configuration = librdkafka_settings(settings) | {"auto.offset.reset": "earliest"}
    consumer = Consumer(configuration)
    try:
        partitions = [
            TopicPartition(topic, index)
            for topic in options.subscription.topic_names
            for index in _partitions(consumer, topic, settings.request_timeout_s)
        ]
        consumer.assign(consumer.committed(partitions, settings.request_timeout_s))
        ended = 0
        while ended < len(partitions):
            (message,) = consumer.consume(1, settings.poll_timeout_s) or (None,)
            error = None if message is None else message.error()
            if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                raise KafkaException(error or KafkaError(KafkaError._TIMED_OUT))
            if error is not None:
                ended += 1
                continue
            yield _record(message)
    finally:
        consumer.close()


def _record(message: Any) -> Record:
    place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
    return Record(message.key(), message.value(), *place, tuple(message.headers() or ()))


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    found = consumer.list_topics(topic, timeout_s).topics[topic]
    if found.error is not None:
        raise OptionsError(f"{topic} cannot be read: {found.error.str()}")
    return sorted(found.partitions)
