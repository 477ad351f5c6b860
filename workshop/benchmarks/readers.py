"""The readers whose throughput is compared, by their names in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from spark_groups import foreach_batch_rows
from spark_groups.spark.source.foreach_batch_rows import TUNING

BatchFunction = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Reader:
    """A way to read a topic.

    Args:
        source: Spark's format; `kafka`, `kafka-group`, or `nowhere`, which reads no topic.
        options: Its options, except those that select the topic and offsets.
        over_rows: Makes of a function that wants rows one for `foreachBatch`, for a source whose
            batches hold something else; None where they hold rows.
        is_columnar: Whether Spark, changed by `workshop.benchmarks.columnar`, reads columns from
            Python.
        by_topic: Further options, by what a topic holds.
    """

    source: str
    options: Mapping[str, str] = field(default_factory=dict)
    over_rows: Callable[[BatchFunction], BatchFunction] | None = None
    is_columnar: bool = False
    by_topic: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def options_of(self, topic: str) -> Mapping[str, str]:
        """Return the options for a topic, by what it holds."""
        return {**self.options, **self.by_topic.get(topic, {})}

    @property
    def reads_a_topic(self) -> bool:
        return self.source != "nowhere"


JVM_DEFAULT = "JVM source, default"
JVM_TUNED = "JVM source, tuned"
JVM_BEST = "JVM source, best"
LIBRDKAFKA = "librdkafka reader"
FAST = "fast reader"
RANGES = "ranges plane"
NOWHERE = "bound: from nowhere"

LARGE_POLLS: Mapping[str, str] = {
    "kafka.max.poll.records": "100000",
    "kafka.receive.buffer.bytes": "-1",
}
BEST: Mapping[str, Mapping[str, str]] = {
    "100 B, none": {
        "kafka.max.poll.records": "10000",
        "kafka.receive.buffer.bytes": "4194304",
    },
    "1000 B, none": {"kafka.max.partition.fetch.bytes": "4194304", **LARGE_POLLS},
    "100 B, lz4": LARGE_POLLS,
}
"""By what a topic holds, the fastest options that `workshop.benchmarks.best_peer` has found."""

READERS: Mapping[str, Reader] = {
    JVM_DEFAULT: Reader("kafka"),
    JVM_TUNED: Reader("kafka", TUNING),
    JVM_BEST: Reader("kafka", by_topic=BEST),
    LIBRDKAFKA: Reader("kafka-group", {"reader": "librdkafka"}),
    FAST: Reader("kafka-group", {"reader": "fast"}),
    RANGES: Reader("kafka-group", {"emit": "ranges"}, foreach_batch_rows),
    NOWHERE: Reader("nowhere"),
}

COLUMNAR_READERS: Mapping[str, Reader] = {
    f"{name}, columnar": replace(READERS[name], is_columnar=True) for name in (FAST, NOWHERE)
}
"""Measured with `--columnar`."""
