"""Views as plain values."""

from __future__ import annotations

import json

from spark_groups.observation.plain_values import by_topic, listed
from spark_groups.types import TopicPartition


def test_partitions_are_grouped_by_topic_in_their_order() -> None:
    flights = [TopicPartition("flights", each) for each in (2, 0)]
    grouped = by_topic([*flights, TopicPartition("orders", 1)])
    assert grouped == {"flights": [2, 0], "orders": [1]}


def test_what_is_listed_is_what_json_reads_back() -> None:
    value = {"a": ({"b": (1, 2)}, None), "c": "text"}
    assert listed(value) == json.loads(json.dumps(value))
