"""Options that are refused, each with the reason and with what to do instead.

A setting that would be taken and then not obeyed is worse than an error at load(): these are the
names that people bring along from Spark's own Kafka source and from Kafka's consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SERVER_SIDE: Final = (
    "the coordinator decides it for a group of the consumer protocol (KIP-848): set it on the"
    " broker or on the group"
)
_NOT_YET: Final = "is not supported yet"
_ENDS: Final = (
    "a stream has no end: use Trigger.AvailableNow; a batch reads until the end of the log: filter"
    " its rows by offset or timestamp"
)

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "assign": "the group's coordinator assigns partitions: use subscribe or subscribePattern",
        "kafka.session.timeout.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.session.timeout.ms=...)"
        ),
        "kafka.heartbeat.interval.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.heartbeat.interval.ms=...)"
        ),
        "kafka.partition.assignment.strategy": (
            "the coordinator assigns: kafka.group.remote.assignor names one of its assignors"
        ),
        "kafka.group.local.assignors": (
            "the coordinator assigns: kafka.group.remote.assignor names one of its assignors"
        ),
        "kafka.auto.offset.reset": "use startingOffsets",
        "kafka.key.deserializer": "keys are binary: convert them in the query",
        "kafka.value.deserializer": "values are binary: convert them in the query",
        "kafka.key.serializer": "this is a source: it writes nothing to Kafka",
        "kafka.value.serializer": "this is a source: it writes nothing to Kafka",
        "kafka.enable.auto.commit": "a batch is committed once it is finished, never before",
        "kafka.auto.commit.interval.ms": "a batch is committed once it is finished, never before",
        "kafka.interceptor.classes": "executors read without a JVM consumer",
        "kafka.max.poll.records": "batches are cut by size: use maxRecordsPerPartition for tasks",
        "kafka.exclude.internal.topics": "a pattern covers what the coordinator lets it cover",
        "kafka.allow.auto.create.topics": "a source creates no topics",
        "groupIdPrefix": "kafka.group.id names the group",
        "startingTimestamp": f"{_NOT_YET}: use startingOffsets",
        "startingOffsetsByTimestamp": f"{_NOT_YET}: use startingOffsets",
        "startingOffsetsByTimestampStrategy": f"{_NOT_YET}: use startingOffsets",
        "endingOffsets": _ENDS,
        "endingTimestamp": _ENDS,
        "endingOffsetsByTimestamp": _ENDS,
        "fetchOffset.numRetries": "kafka.default.api.timeout.ms bounds every retry",
        "fetchOffset.retryIntervalMs": "kafka.default.api.timeout.ms bounds every retry",
        "path": "load() takes no path: subscribe names the topics",
    }
)
"""Reasons by the name as Spark or Kafka spells it."""

REFUSED_PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.sasl.kerberos.": f"Kerberos {_NOT_YET}",
        "kafka.sasl.login.": "it is about Java classes: kafka.sasl.jaas.config says who logs in",
    }
)
"""Reasons by how the names begin."""
