"""Which partitions a group has to do with."""

from __future__ import annotations

import uuid
from dataclasses import replace

from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription
from spark_groups.group.member.messages import OffsetAndMetadata, TopicMetadata
from spark_groups.observation.reading import described_as_consumer_group
from spark_groups.types import TopicPartition
from spark_groups.wire.group_admin import ClassicGroup, ClassicMember
from tests.observation.groups import FLIGHTS, ONE, key, member, read

OTHER = uuid.UUID(int=77)


def test_every_partition_of_a_topic_that_is_subscribed_by_name_counts() -> None:
    assert read(member(ONE, []), partitions=3).partitions() == {key(0), key(1), key(2)}


def test_every_partition_of_a_topic_that_a_pattern_found_counts() -> None:
    by_pattern = member(ONE, [0], subscribed_topic_names=(), subscribed_topic_regex="f.*")
    assert read(by_pattern, partitions=3).partitions() == {key(0), key(1), key(2)}


def test_a_partition_that_is_only_in_a_target_counts() -> None:
    reading = read(member(ONE, [], [5], subscribed_topic_names=()))
    assert key(5) in replace(reading, topics=()).partitions()


def test_of_an_unsubscribed_topic_only_committed_partitions_count() -> None:
    assert read(partitions=9, committed={4: 10}, state="Empty").partitions() == {key(4)}


def test_a_partition_whose_committed_offset_is_an_error_counts() -> None:
    reading = read(partitions=9, committed_errors={4: 88}, state="Empty")
    assert reading.partitions() == {key(4)}


def test_a_topic_that_is_neither_subscribed_nor_assigned_adds_nothing() -> None:
    reading = read(member(ONE, [0]), partitions=1)
    with_other = replace(
        reading,
        topics=(*reading.topics, TopicMetadata(OTHER, "other", 3)),
        committed={key(2, OTHER): OffsetAndMetadata(1)},
    )
    assert with_other.partitions() == {key(0), key(2, OTHER)}


def test_names_come_from_the_coordinator_and_from_the_topics_that_exist() -> None:
    reading = read(member(ONE, [0]))
    assert replace(reading, topics=()).topic_names() == {FLIGHTS: "flights"}
    assert read(committed={0: 1}, state="Empty").topic_names() == {FLIGHTS: "flights"}


def test_a_classic_group_becomes_a_consumer_group_description() -> None:
    group = ClassicGroup(
        group_state="Stable",
        assignor_name="range",
        members=(
            ClassicMember(
                member_id=ONE,
                instance_id="gate-1",
                subscription=Subscription(topics=("flights", "gone")),
                embedded_assignment=EmbeddedAssignment(
                    partitions=frozenset({TopicPartition("flights", 1), TopicPartition("gone", 0)})
                ),
            ),
        ),
    )
    topics = [TopicMetadata(FLIGHTS, "flights", 2)]
    found = described_as_consumer_group("g", group, topics)
    (only,) = found.members
    assert (found.group_id, found.group_state, found.assignor_name) == (
        "g",
        "Stable",
        "range",
    )
    assert (only.member_id, only.instance_id, only.member_type) == (ONE, "gate-1", 0)
    assert only.assignment.partitions == only.target_assignment.partitions == {key(1)}
    assert found.topic_names == {FLIGHTS: "flights"}
