"""Images of the cluster's topics: what changed between two of them."""

from __future__ import annotations

import uuid
from dataclasses import replace

from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage

A = TopicImage(uuid.UUID(int=1), "a", 3)
B = TopicImage(uuid.UUID(int=2), "b", 3)
BORN_AGAIN = TopicImage(uuid.UUID(int=3), "a", 3)


def test_every_change_is_a_version_and_only_a_new_topic_is_created() -> None:
    image = TopicsImage.of([A], version=5)
    assert (image.version, image.created_version) == (5, 5)
    grown = image.with_topic(replace(A, partition_count=4))
    assert (grown.version, grown.created_version) == (6, 5)
    two = grown.with_topic(B)
    assert (two.version, two.created_version) == (7, 7)
    one = two.without("a")
    assert (one.version, one.created_version) == (8, 7)
    again = one.with_topic(BORN_AGAIN)
    assert (again.version, again.created_version) == (9, 9)


def test_a_topic_is_found_by_its_id() -> None:
    image = TopicsImage.of([A, B])
    assert image.by_id(B.topic_id) == B
    assert image.by_id(BORN_AGAIN.topic_id) is None


def test_a_topic_with_an_old_name_and_a_new_id_was_deleted() -> None:
    before = TopicsImage.of([A, B])
    assert before.deleted_since(before) == set()
    assert before.with_topic(replace(A, partition_count=9)).deleted_since(before) == set()
    assert before.without("b").deleted_since(before) == {"b"}
    assert before.with_topic(BORN_AGAIN).deleted_since(before) == {"a"}
    assert before.deleted_since(TopicsImage()) == set()
