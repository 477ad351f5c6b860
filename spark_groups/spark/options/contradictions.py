"""Options that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.spark.options.librdkafka_options import FETCH_DEFAULTS
from spark_groups.spark.options.option_values import EndingOffsets
from spark_groups.types import LATEST_TIMESTAMP, TopicPartition


def contradicting_limits(
    least: int | None, most: int | None, fetch_tuning: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Yield a problem for each limit that exceeds another one.

    Args:
        least: `minOffsetsPerTrigger`.
        most: `maxOffsetsPerTrigger`.
        fetch_tuning: Settings under librdkafka's names.
    """
    if least is not None and most is not None and least > most:
        yield f"minOffsetsPerTrigger ({least}) exceeds maxOffsetsPerTrigger ({most})"
    tuned = {**FETCH_DEFAULTS, **dict(fetch_tuning)}
    pause_ms = tuned["reconnect.backoff.ms"]
    longest_ms = tuned["reconnect.backoff.max.ms"]
    if int(pause_ms) > int(longest_ms):
        yield (
            f"kafka.reconnect.backoff.ms ({pause_ms}) exceeds kafka.reconnect.backoff.max.ms"
            f" ({longest_ms})"
        )


def empty_reads(
    starting: StartingOffsets, ending: EndingOffsets, *, has_group: bool
) -> Iterator[str]:
    """Yield problems of batch reads that certainly have no rows, as Spark's source refuses them."""
    is_latest = starting.default is StartingPoint.LATEST
    if not has_group and (is_latest or LATEST_TIMESTAMP in starting.by_partition.values()):
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
