"""Where a partition without a committed offset starts, and what is kept beside an offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.offsets.starting import (
    StartingOffsets,
    StartingPoint,
    commit_metadata,
    parse_commit_metadata,
)
from spark_groups.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from spark_groups.types import TopicPartition

FIRST, ADDED = TopicPartition("orders", 0), TopicPartition("orders", 4)


@pytest.mark.parametrize(
    ("starting", "partition", "known_count", "start"),
    [
        (StartingOffsets(), FIRST, None, LATEST_TIMESTAMP),
        (StartingOffsets(), FIRST, 4, LATEST_TIMESTAMP),
        (StartingOffsets(), ADDED, 4, EARLIEST_TIMESTAMP),
        (StartingOffsets(), ADDED, 5, LATEST_TIMESTAMP),
        (StartingOffsets(), FIRST, 0, EARLIEST_TIMESTAMP),
        (StartingOffsets(StartingPoint.EARLIEST), FIRST, 4, EARLIEST_TIMESTAMP),
        (StartingOffsets(by_partition={FIRST: 17}), FIRST, 4, 17),
        (StartingOffsets(by_partition={ADDED: 0}), ADDED, 4, 0),
        (StartingOffsets(by_partition={FIRST: -2}), FIRST, 4, EARLIEST_TIMESTAMP),
        (StartingOffsets(by_partition={FIRST: 17}), ADDED, None, LATEST_TIMESTAMP),
    ],
)
def test_start(
    starting: StartingOffsets, partition: TopicPartition, known_count: int | None, start: int
) -> None:
    assert starting.of(partition, known_count=known_count) == start


@settings(derandomize=True)
@given(some.integers(0, 2**31))
def test_partition_count_is_kept_beside_an_offset(count: int) -> None:
    assert parse_commit_metadata(commit_metadata(count)) == count


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "spark", "{", "[]", "7", "null", '"partitions"', "{}", '{"partitions":null}'),
        *('{"partitions":"4"}', '{"partitions":-1}', '{"partitions":true}', '{"partitions":4.0}'),
    ],
)
def test_what_others_kept_there_is_no_count(metadata: str) -> None:
    assert parse_commit_metadata(metadata) is None


def test_metadata_fits_the_brokers_limit() -> None:
    assert len(commit_metadata(2**31)) < 4096
