"""Options that contradict each other, or what the query makes of a load()."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.group.member.messages import LATEST_TIMESTAMP
from spark_groups.spark.options.librdkafka_options import FETCH_DEFAULTS
from spark_groups.types import TopicPartition

if TYPE_CHECKING:
    from spark_groups.spark.options.source_options import SourceOptions

NO_GROUP: Final = "kafka.group.id is missing: a stream requires a group to join"
NO_TOPICS: Final = "the query has no topics: set subscribe or subscribePattern"


def contradictions(options: SourceOptions) -> Iterator[str]:
    """Yield a problem for each pair of options that contradict each other."""
    yield from _empty_reads(options)
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        yield f"minOffsetsPerTrigger ({least}) exceeds maxOffsetsPerTrigger ({most})"
    tuned = {**FETCH_DEFAULTS, **dict(options.fetch_tuning)}
    pause_ms = tuned["reconnect.backoff.ms"]
    longest_ms = tuned["reconnect.backoff.max.ms"]
    if int(pause_ms) > int(longest_ms):
        yield (
            f"kafka.reconnect.backoff.ms ({pause_ms}) exceeds kafka.reconnect.backoff.max.ms"
            f" ({longest_ms})"
        )


def _empty_reads(options: SourceOptions) -> Iterator[str]:
    """Yield problems of batch reads that certainly have no rows, as Spark's source refuses them."""
    starting, ending = options.starting, options.ending
    is_latest = starting.default is StartingPoint.LATEST
    if options.group is None and (is_latest or LATEST_TIMESTAMP in starting.by_partition.values()):
        yield "startingOffsets: a batch read without kafka.group.id cannot start at latest"
    for partition, first in starting.by_partition.items():
        last = ending.by_partition.get(partition, LATEST_TIMESTAMP)
        if first > last >= 0:
            yield f"startingOffsets of {partition} ({first}) exceeds endingOffsets ({last})"
    if starting.timestamps is None or ending.timestamps is None:
        return
    named = {*starting.timestamps.by_partition_ms, *ending.timestamps.by_partition_ms}
    for partition in sorted(named) or [TopicPartition("", 0)]:
        first_ms, last_ms = starting.timestamps.of(partition), ending.timestamps.of(partition)
        if first_ms is not None and last_ms is not None and first_ms > last_ms:
            yield (
                f"{starting.timestamps.option} ({first_ms}) exceeds {ending.timestamps.option}"
                f" ({last_ms}){f' of {partition}' if named else ''}"
            )


def problems_of_a_stream(options: SourceOptions) -> Iterator[str]:
    """Yield what a stream lacks, and what only a batch read may have.

    load() cannot know which of them it becomes, so a query checks this at its start.
    """
    if options.group is None:
        yield NO_GROUP
    if options.chosen is None:
        yield NO_TOPICS
    for name, value in (
        ("endingTimestamp", options.ending_timestamp_ms),
        ("endingOffsetsByTimestamp", options.ending_timestamps_ms),
        ("endingOffsets", options.ending_offsets.by_partition or None),
    ):
        if value is not None:
            yield f"{name}: a stream has no end: use Trigger.AvailableNow"
