"""Offsets of Spark's own Kafka source are recognized, and written as it takes them."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.group.ledger.plan_text import NOTHING_PLANNED, plan_as_json
from spark_groups.group.ledger.sparks_kafka_offsets import as_starting_offsets, sparks_kafka_offsets
from spark_groups.types import BatchPlan, PlanTopic, TopicPartition

P0, P1, P10 = (TopicPartition("flights", each) for each in (0, 1, 10))


def test_offsets_are_read_by_partition() -> None:
    value = {"flights": {"0": 7, "10": 0}, "orders": {"0": 2**40}}
    assert sparks_kafka_offsets(value) == {P0: 7, P10: 0, TopicPartition("orders", 0): 2**40}


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        [],
        {},
        {"flights": {}},
        {"flights": 7},
        {"flights": {"0": "7"}},
        {"flights": {"0": -1}},
        {"flights": {"0": True}},
        {"flights": {"x": 7}},
        {"flights": {"0": 7}, "orders": None},
        {"logOffset": 3},
        {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 3, "index": -1},
        dict(NOTHING_PLANNED),
        plan_as_json(BatchPlan("g", "m", 3, (), (PlanTopic(uuid.UUID(int=1), "flights", 4),))),
    ],
)
def test_what_another_source_wrote_is_none(value: object) -> None:
    assert sparks_kafka_offsets(value) is None


def test_starting_offsets_name_every_partition_in_order() -> None:
    written = as_starting_offsets({P10: 5, P0: 7}, [P0, P1, P10])
    assert written == {"flights": {"0": 7, "1": -2, "10": 5}}
    assert list(written["flights"]) == ["0", "1", "10"]
