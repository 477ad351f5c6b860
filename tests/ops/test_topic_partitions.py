"""Topics and partitions as options name them."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.ops.topic_partitions import parse_topics, partitions_of
from spark_groups.protocol.messages import TopicMetadata
from spark_groups.types import TopicPartition
from tests.observation.groups import FLIGHTS


def test_a_topic_is_all_its_partitions_or_those_that_are_named() -> None:
    assert parse_topics(["flights:0, 2", "flights:1", "orders"]) == {
        "flights": frozenset({0, 1, 2}),
        "orders": None,
    }
    assert parse_topics(["flights:0", "flights"]) == {"flights": None}
    assert parse_topics(["flights", "flights:0"]) == {"flights": None}


@pytest.mark.parametrize("text", ["", ":0", "flights:", "flights:a", "flights:-1", "flights:0,"])
def test_what_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is neither TOPIC nor TOPIC:0,1,2"):
        parse_topics([text])


def test_what_does_not_exist_is_told_from_what_does() -> None:
    known = [TopicMetadata(FLIGHTS, "flights", 2)]
    there, missing = partitions_of({"flights": frozenset({1, 2}), "gone": None}, known)
    assert there == (TopicPartition("flights", 1),)
    assert missing == (TopicPartition("flights", 2), TopicPartition("gone", -1))
    assert partitions_of({"flights": None}, known)[0] == (
        TopicPartition("flights", 0),
        TopicPartition("flights", 1),
    )
