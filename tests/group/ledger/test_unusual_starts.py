"""Partitions that start where a user may not expect it, and the warnings about that."""

from __future__ import annotations

import pytest

from spark_groups.group.ledger.events import ExistingRowsSkipped, NewTopicRead, RowsSinceSkipped
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.member.messages import TopicMetadata
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Assignment,
    PlanTopic,
    TopicPartition,
)
from tests.answers import fetch_answer
from tests.group.ledger.resolution_setup import (
    BEHIND_2,
    BILLS,
    EARLIEST,
    FIRST_BILLS,
    LATEST,
    NONE,
    TOPIC,
    Scene,
    committed,
    key,
    read_whole,
    started,
)


def unseen(starting: StartingOffsets, *owned: int) -> Scene:
    """Return a query whose checkpoint names another topic only."""
    scene = Scene(starting, *owned, count=0)
    scene.topics.remember([PlanTopic(BILLS, "bills")], of_this_group=True)
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    return scene


def test_topic_that_the_checkpoint_lacks_is_read_from_its_beginning() -> None:
    scene = unseen(LATEST, 0, 1)
    scene.fetched(dict.fromkeys(range(4), NONE))
    assert [scene.of(each).lookup.timestamp_ms for each in (0, 1)] == [EARLIEST_TIMESTAMP] * 2
    (reported,) = started(scene, at=0)
    assert isinstance(reported, NewTopicRead)
    assert (reported.topic, reported.partitions) == ("orders", (key(0), key(1)))
    assert " reset-offsets g --topic orders:0,1 --to-latest --execute" in reported.command


def test_topic_that_the_checkpoint_lacks_continues_where_the_group_has_read_it() -> None:
    scene = unseen(LATEST, 0, 1)
    scene.fetched({0: committed(7), 1: NONE, 2: NONE, 3: NONE})
    assert (scene.of(0).position, scene.of(0).phase) == (7, Phase.READY)
    assert scene.of(1).lookup.timestamp_ms == LATEST_TIMESTAMP, "the group began with 4 partitions"
    assert started(scene) == []


@pytest.mark.parametrize(
    ("starting", "asks_for"),
    [
        (EARLIEST, EARLIEST_TIMESTAMP),
        (StartingOffsets(by_partition={TopicPartition("orders", 0): 7}), LATEST_TIMESTAMP),
    ],
)
def test_topic_that_the_checkpoint_lacks_starts_where_it_is_named(
    starting: StartingOffsets, asks_for: int
) -> None:
    scene = unseen(starting, 0)
    scene.fetched(dict.fromkeys(range(4), NONE))
    assert scene.of(0).lookup.timestamp_ms == asks_for
    assert started(scene) == []


def beside_bills(*owned: int) -> Scene:
    """Return a query without a checkpoint, in a group that has read another topic."""
    scene = Scene(LATEST, *owned)
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    scene.resolver.to_fetch()
    offsets = {**dict.fromkeys(map(key, range(4)), NONE), FIRST_BILLS: committed(7)}
    response = fetch_answer(offsets=offsets)
    scene.resolver.handle_fetch(response, now=1.0)
    return scene


def test_query_without_a_checkpoint_asks_whether_the_group_has_read_other_topics() -> None:
    scene = Scene(LATEST, 0)
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    assert FIRST_BILLS in scene.resolver.to_fetch()


def test_topic_that_starts_at_latest_beside_topics_that_the_group_has_read_is_reported() -> None:
    """It may have appeared while no member ran; without a checkpoint, startingOffsets applies."""
    scene = beside_bills(0, 1)
    assert scene.of(0).lookup.timestamp_ms == LATEST_TIMESTAMP
    (reported,) = started(scene, at=9)
    assert isinstance(reported, ExistingRowsSkipped)
    assert (reported.rows, reported.partitions) == (18, (key(0), key(1)))
    assert " reset-offsets g --topic orders:0,1 --to-earliest --execute" in reported.command


def left_unread(starting: StartingOffsets) -> Scene:
    """Return a query whose earlier run knew the topic, and ended before it had an offset of it."""
    scene = Scene(starting, 0, 1, count=0)
    scene.topics.remember([PlanTopic(TOPIC, "orders", 4, is_read=False)], of_this_group=True)
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    scene.fetched(dict.fromkeys(range(4), NONE))
    return scene


def test_rows_since_a_run_that_could_not_read_a_topic_are_not_skipped_in_silence() -> None:
    scene = left_unread(LATEST)
    assert scene.of(0).lookup.timestamp_ms == LATEST_TIMESTAMP
    (reported,) = started(scene, at=9)
    assert isinstance(reported, RowsSinceSkipped)
    assert (reported.rows, reported.partitions) == (18, (key(0), key(1)))
    assert " reset-offsets g --topic orders:0,1 --to-earliest --execute" in reported.command
    assert started(left_unread(LATEST), at=0) == []
    assert started(left_unread(EARLIEST)) == []


def test_topic_without_rows_that_starts_beside_others_is_not_reported() -> None:
    assert started(beside_bills(0, 1), at=0) == []


def test_first_topics_of_a_group_are_not_reported() -> None:
    scene = Scene(LATEST, 0)
    scene.fetched(dict.fromkeys(range(4), NONE))
    assert started(scene) == []
    scene.ledger.assign(Assignment.of({TOPIC: (1,)}), 4)
    scene.fetched({0: committed(9), 1: NONE, 2: NONE, 3: NONE})
    assert started(scene) == []


def test_start_of_a_partition_that_was_lost_meanwhile_is_not_reported() -> None:
    scene = Scene(LATEST, 2, 3)
    scene.fetched(BEHIND_2)
    scene.ledger.drop(Assignment.of({TOPIC: (2,)}))
    assert read_whole(scene) == [("orders", (3,))]


def test_a_topic_created_after_the_join_is_read_whole_without_a_warning() -> None:
    scene = Scene(LATEST, 0, count=0)
    scene.topics.end_initial_topics()
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    scene.fetched(dict.fromkeys(range(4), NONE))
    scene.ledger.assign(Assignment.of({TOPIC: (1,)}), 4)
    scene.fetched({0: committed(0, 0), 1: NONE})
    assert started(scene) == []
    assert scene.of(1).lookup.timestamp_ms == EARLIEST_TIMESTAMP


def test_earliest_says_nothing_of_counts() -> None:
    scene = Scene(EARLIEST, 0, 2)
    scene.fetched({0: committed(5, None), 2: NONE})
    assert scene.of(2).lookup.timestamp_ms == EARLIEST_TIMESTAMP
    assert started(scene) == []
