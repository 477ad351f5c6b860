"""Starting positions of partitions without a committed offset, and commit metadata."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.errors import OptionsError
from spark_groups.group.ledger.commit_metadata import (
    commit_metadata,
    is_reset,
    is_truncated,
    known_counts,
    mark_of,
    partition_count_in,
)
from spark_groups.group.ledger.events import DataLost
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.ledger.starting import (
    Option,
    StartingOffsets,
    StartingPoint,
    Timestamps,
    WithoutRecord,
)
from spark_groups.group.member.messages import NO_OFFSET, OffsetAndMetadata
from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tests.answers import list_answer
from tests.group.ledger.resolution_setup import NONE, Scene, indexes, key

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
        (StartingOffsets(by_partition={ADDED: -1}), ADDED, 4, EARLIEST_TIMESTAMP),
        (StartingOffsets(by_partition={ADDED: -1}), ADDED, 5, LATEST_TIMESTAMP),
        (StartingOffsets(by_partition={FIRST: -2}), FIRST, 4, EARLIEST_TIMESTAMP),
        (StartingOffsets(by_partition={FIRST: 17}), ADDED, None, LATEST_TIMESTAMP),
    ],
)
def test_start(
    starting: StartingOffsets, partition: TopicPartition, known_count: int | None, start: int
) -> None:
    assert starting.of(partition, known_count=known_count) == start


@pytest.mark.parametrize(
    ("partition", "known_count", "timestamp_ms"),
    [(FIRST, None, 1000), (FIRST, 4, 1000), (ADDED, 4, None), (ADDED, 5, 2000), (FIRST, 0, None)],
)
def test_timestamp_applies_to_partitions_that_were_there_when_the_group_began(
    partition: TopicPartition, known_count: int | None, timestamp_ms: int | None
) -> None:
    starting = StartingOffsets.at(Timestamps("startingTimestamp", 1000, {ADDED: 2000}))
    assert starting.timestamp_ms(partition, known_count=known_count) == timestamp_ms
    assert starting.of(partition, known_count=known_count) == EARLIEST_TIMESTAMP
    assert starting.skips(partition)
    assert starting.may_skip
    assert starting.option(FIRST) is Option.TIMESTAMP


def by_time(without_record: WithoutRecord, *partitions: int) -> Scene:
    """Return a scene whose partition 0 starts at 1000 ms and 1 at 2000 ms; 2 is not named."""
    named = {TopicPartition("orders", 0): 1000, TopicPartition("orders", 1): 2000}
    option = "startingOffsetsByTimestamp"
    starting = StartingOffsets.at(
        Timestamps(option, by_partition_ms=named, without_record=without_record)
    )
    return Scene(starting, *partitions)


def test_partition_starts_at_the_first_record_of_its_timestamp() -> None:
    scene = by_time(WithoutRecord.ERROR, 0, 1, 2, 3)
    assert scene.resolver.commits_start_first
    scene.fetched({0: NONE, 1: NONE, 2: NONE, 3: OffsetAndMetadata(9, commit_metadata(4))})
    asked = [scene.listed({each: 40 + each}) for each in range(3)]
    assert [(each.timestamp_ms, indexes(each)) for each in asked] == [
        (1000, [0]),
        (2000, [1]),
        (EARLIEST_TIMESTAMP, [2]),
    ]
    assert all(each.read_committed for each in asked)
    starts = {at: each.committed_offset for at, each in scene.commit().items()}
    assert starts == {0: 40, 1: 41, 2: 42}
    assert scene.of(3).position == 9, "a committed offset goes first"


def test_no_record_of_the_timestamp_ends_the_query() -> None:
    scene = by_time(WithoutRecord.ERROR)
    scene.fetched({0: NONE})
    request = scene.resolver.listing.to_list()
    assert request is not None
    answer = list_answer(offsets={key(0): NO_OFFSET})
    resolved = scene.handle_list(request, answer)
    assert isinstance(resolved.refusal, OptionsError)
    assert str(resolved.refusal).startswith(
        "startingOffsetsByTimestamp of orders-0 is 1000, but no record there has this timestamp or"
        " a later one: name an earlier time, or set startingOffsetsByTimestampStrategy to latest"
    )
    assert not scene.commits.pending()


@pytest.mark.parametrize(("found", "start"), [(NO_OFFSET, 7), (9, 9), (3, 3)])
def test_no_record_of_the_timestamp_starts_at_the_end_that_was_listed_before(
    found: int, start: int
) -> None:
    scene = by_time(WithoutRecord.LATEST)
    scene.fetched({0: NONE})
    assert scene.listed({0: 7}).timestamp_ms == LATEST_TIMESTAMP
    assert not scene.commits.pending()
    # A record of that time that arrived in between is read.
    assert scene.listed({0: found}).timestamp_ms == 1000
    assert {at: each.committed_offset for at, each in scene.commit().items()} == {0: start}


def test_added_partition_starts_at_its_beginning_despite_a_timestamp() -> None:
    scene = by_time(WithoutRecord.ERROR, 1)
    scene.fetched({0: OffsetAndMetadata(9, commit_metadata(1)), 1: NONE, 2: NONE, 3: NONE})
    assert scene.listed({1: 0}).timestamp_ms == EARLIEST_TIMESTAMP


@settings(derandomize=True)
@given(some.integers(0, 2**31 - 1))
def test_partition_count_is_kept_beside_an_offset(count: int) -> None:
    assert partition_count_in(commit_metadata(count)) == count


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "spark", "{", "[]", "7", "null", '"partitions"', "{}", '{"partitions":null}'),
        *(pytest.param("[" * 4000, id="nested deeply"), '{"partitions":2147483648}'),
        *('{"partitions":"4"}', '{"partitions":-1}', '{"partitions":true}', '{"partitions":4.0}'),
    ],
)
def test_what_others_kept_there_is_no_count(metadata: str) -> None:
    assert partition_count_in(metadata) is None


def test_a_reset_is_no_commit_of_a_query_and_keeps_the_count() -> None:
    assert commit_metadata(4, is_reset=True) == '{"partitions":4,"reset":true}'
    assert partition_count_in('{"partitions":4,"reset":true}') == 4
    assert is_reset(commit_metadata(4, is_reset=True))
    for metadata in (commit_metadata(4), "", "spark", "[]", '{"reset":false}', '{"reset":1}'):
        assert not is_reset(metadata)


def test_mark_of_a_commit_is_read_back_only_beside_its_own_offset() -> None:
    """A tool that writes another offset and keeps the metadata makes no commit of a query."""
    metadata = commit_metadata(4, mark="k3Jx9aQb", offset=17)
    assert metadata == '{"partitions":4,"mark":"k3Jx9aQb","offset":17}'
    assert mark_of(OffsetAndMetadata(17, metadata)) == "k3Jx9aQb"
    assert mark_of(OffsetAndMetadata(16, metadata)) == NO_MARK


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "spark", "[]", '{"partitions":4}', '{"mark":"m"}', '{"offset":17}'),
        *('{"mark":7,"offset":17}', '{"mark":"m","offset":"17"}', '{"mark":"m","offset":17.0}'),
    ],
)
def test_metadata_of_others_and_of_earlier_versions_has_no_mark(metadata: str) -> None:
    assert mark_of(OffsetAndMetadata(17, metadata)) == NO_MARK


def test_offset_that_a_log_was_truncated_to_keeps_mark_and_count() -> None:
    metadata = commit_metadata(4, mark="k3Jx9aQb", offset=17, is_truncated=True)
    assert metadata == '{"partitions":4,"mark":"k3Jx9aQb","offset":17,"truncated":true}'
    assert partition_count_in(metadata) == 4
    assert mark_of(OffsetAndMetadata(17, metadata)) == "k3Jx9aQb"
    assert is_truncated(metadata)
    for other in (commit_metadata(4), '{"partitions":4,"truncated":1}', "", "spark"):
        assert not is_truncated(other)


def test_latest_skips_partitions_that_are_not_named() -> None:
    named = {TopicPartition("orders", 1): 7, TopicPartition("orders", 2): LATEST_TIMESTAMP}
    for default, skips in ((StartingPoint.LATEST, True), (StartingPoint.EARLIEST, False)):
        starting = StartingOffsets(default, named)
        assert starting.skips(TopicPartition("orders", 0)) is skips
        assert not starting.skips(TopicPartition("orders", 1))
        assert starting.skips(TopicPartition("orders", 2))


def test_metadata_fits_the_brokers_limit() -> None:
    assert len(commit_metadata(2**31)) < 4096


NAMED = StartingOffsets(by_partition={TopicPartition("orders", 0): 7})


@pytest.mark.parametrize("end", [7, 9])
def test_start_that_is_an_offset_is_committed_where_the_log_has_it(end: int) -> None:
    scene = Scene(NAMED, 0, 1)
    scene.fetched({0: NONE, 1: NONE})
    questions = {
        each.read_committed: each for each in (scene.listed({0: end}), scene.listed({1: 3}))
    }
    assert indexes(questions[False]) == [0], "it may be above the last stable offset"
    assert indexes(questions[True]) == [1]
    assert {at: each.committed_offset for at, each in scene.commit().items()} == {0: 7, 1: 3}


@pytest.mark.parametrize("fails", [True, False])
def test_start_beyond_the_end_of_the_log_is_reported_and_not_committed(fails: bool) -> None:
    scene = Scene(NAMED, fail_on_data_loss=fails)
    scene.fetched({0: NONE})
    request = scene.resolver.listing.to_list()
    assert request is not None
    answer = list_answer(offsets={key(0): 5})
    resolved = scene.handle_list(request, answer)
    (event,) = resolved.events
    assert isinstance(event, DataLost)
    assert event.message.startswith("startingOffsets of orders-0 is 7, but its log ends at 5:")
    assert resolved.data_loss == (event.message if fails else None)
    assert [each.committed_offset for each in scene.commit().values()] == ([] if fails else [5])


def test_smallest_count_that_is_kept_beside_an_offset_is_the_topic_s() -> None:
    offsets = {
        key(0): OffsetAndMetadata(7, commit_metadata(4)),
        key(1): OffsetAndMetadata(9, commit_metadata(3)),
        key(2): OffsetAndMetadata(NO_OFFSET, commit_metadata(1)),
        key(3): OffsetAndMetadata(5, "by somebody else"),
    }
    assert known_counts(offsets) == {key(0).topic_id: 3}
    assert known_counts({key(3): offsets[key(3)]}) == {}
