"""Which partitions a group has to do with."""

from __future__ import annotations

import uuid
from dataclasses import replace

from spark_groups.protocol.messages import OffsetAndMetadata, OffsetFetchResponse, TopicMetadata
from tests.ops.groups import FLIGHTS, ONE, key, member, read

OTHER = uuid.UUID(int=77)


def test_every_partition_of_a_topic_that_is_subscribed_by_name_counts() -> None:
    assert read(member(ONE, []), partitions=3).partitions() == {key(0), key(1), key(2)}


def test_every_partition_of_a_topic_that_a_pattern_found_counts() -> None:
    by_pattern = member(ONE, [0], subscribed_topic_names=(), subscribed_topic_regex="f.*")
    assert read(by_pattern, partitions=3).partitions() == {key(0), key(1), key(2)}


def test_a_partition_that_is_only_in_a_target_counts() -> None:
    reading = read(member(ONE, [], [5], subscribed_topic_names=()))
    assert key(5) in replace(reading, topics=()).partitions()


def test_of_a_topic_that_nobody_subscribes_only_what_is_committed_counts() -> None:
    assert read(partitions=9, committed={4: 10}, state="Empty").partitions() == {key(4)}


def test_a_partition_whose_committed_offset_is_an_error_counts() -> None:
    reading = read(partitions=9, committed_errors={4: 88}, state="Empty")
    assert reading.partitions() == {key(4)}


def test_a_topic_that_is_neither_subscribed_nor_assigned_adds_nothing() -> None:
    reading = read(member(ONE, [0]), partitions=1)
    with_other = replace(
        reading,
        topics=(*reading.topics, TopicMetadata(OTHER, "other", 3)),
        committed=OffsetFetchResponse(offsets={key(2, OTHER): OffsetAndMetadata(1)}),
    )
    assert with_other.partitions() == {key(0), key(2, OTHER)}


def test_names_come_from_the_coordinator_and_from_the_topics_that_exist() -> None:
    reading = read(member(ONE, [0]))
    assert replace(reading, topics=()).topic_names() == {FLIGHTS: "flights"}
    assert read(committed={0: 1}, state="Empty").topic_names() == {FLIGHTS: "flights"}
