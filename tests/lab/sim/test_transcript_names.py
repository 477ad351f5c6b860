"""Names of a transcript and the ids behind them."""

from __future__ import annotations

import random

import pytest

from spark_groups.lab.sim.transcript_names import TranscriptNames
from spark_groups.types import TopicIdPartition


@pytest.fixture
def names() -> TranscriptNames:
    return TranscriptNames(random.Random(1))


def test_member_has_one_id(names: TranscriptNames) -> None:
    first = names.member_id("m1")
    assert names.member_id("m1") == first
    assert names.member(first) == "m1"
    assert names.member_id("m2") != first
    assert names.member_id(None) == names.member_id("") == ""


def test_member_that_nobody_named_was_made_by_the_coordinator(names: TranscriptNames) -> None:
    assert names.member("from the coordinator") == "gen"
    assert names.member_id("gen") == "from the coordinator"


def test_topic_that_is_created_again_is_another_one(names: TranscriptNames) -> None:
    old = names.created("foo")
    names.deleted("foo")
    assert names.key("foo-0") == names.key("foo(old)-0") == TopicIdPartition(old, 0)
    assert names.topic(old) == "foo(old)"
    new = names.created("foo")
    assert names.key("foo-1") == TopicIdPartition(new, 1)
    assert names.key("foo(old)-1") == TopicIdPartition(old, 1)
    assert (names.topic(new), names.topic(old)) == ("foo", "foo(old)")


def test_partitions_are_sorted_by_topic_name(names: TranscriptNames) -> None:
    keys = [names.key(text) for text in ("foo-1", "bar-2", "foo-0")]
    assert list(names.partitions(keys).items()) == [("bar", [2]), ("foo", [0, 1])]


def test_message_has_names(names: TranscriptNames) -> None:
    text = f"Member {names.member_id('m1')} was fenced by {names.member_id('m2')}."
    assert names.text(text) == "Member m1 was fenced by m2."
