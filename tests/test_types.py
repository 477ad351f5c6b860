"""The values: their algebra, their text, and what they refuse."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    BatchPlan,
    OffsetRange,
    PlanTopic,
    TopicIdPartition,
    parse_topic_id,
    sum_of_known,
    topic_id_text,
)

FLIGHTS = uuid.UUID(int=1)
PARTITIONS = st.builds(
    TopicIdPartition, st.sampled_from([FLIGHTS, uuid.UUID(int=2)]), st.integers(0, 5)
)
ASSIGNMENTS = st.builds(Assignment, st.frozensets(PARTITIONS))


@given(st.uuids())
def test_topic_id_text_is_read_back(topic_id: uuid.UUID) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert parse_topic_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "flights", "A" * 21, "A" * 23, "*" * 22])
def test_text_that_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kafka topic id"):
        parse_topic_id(text)


@given(ASSIGNMENTS)
def test_assignment_is_read_back_from_its_wire_form(assignment: Assignment) -> None:
    assert Assignment.of(assignment.by_topic()) == assignment


@given(ASSIGNMENTS, ASSIGNMENTS)
def test_kept_and_lost_make_up_the_owned_partitions(owned: Assignment, target: Assignment) -> None:
    kept, lost = owned & target, owned - target
    assert kept | lost == owned
    assert kept & lost == NO_PARTITIONS
    assert kept <= target
    assert len(kept) + len(lost) == len(owned)
    assert all(partition in owned for partition in lost)


@given(ASSIGNMENTS)
def test_assignment_is_walked_in_order(assignment: Assignment) -> None:
    assert list(assignment) == sorted(assignment.partitions)


@pytest.mark.parametrize(("from_offset", "until_offset"), [(-1, 3), (4, 3)])
def test_range_that_is_none_is_refused(from_offset: int, until_offset: int) -> None:
    with pytest.raises(ValueError, match="flights-7"):
        OffsetRange(FLIGHTS, "flights", 7, from_offset, until_offset)


def test_range_counts_offsets_and_knows_its_partition_by_id_and_by_name() -> None:
    offsets = OffsetRange(FLIGHTS, "flights", 7, 10, 25)
    assert len(offsets) == 15
    assert offsets.key == TopicIdPartition(FLIGHTS, 7)
    assert str(offsets.topic_partition) == "flights-7"
    assert str(offsets.key) == f"{topic_id_text(FLIGHTS)}-7"


def test_plan_knows_its_partitions() -> None:
    ranges = (OffsetRange(FLIGHTS, "flights", 0, 0, 5), OffsetRange(FLIGHTS, "flights", 3, 2, 2))
    plan = BatchPlan("readers", "m-1", 4, ranges)
    assert plan.partitions() == {TopicIdPartition(FLIGHTS, 0), TopicIdPartition(FLIGHTS, 3)}
    assert BatchPlan("readers", "m-1", 4).partitions() == frozenset()


@pytest.mark.parametrize(("tasks", "ranges"), [(-1, 0), (2, 1)])
def test_a_warm_up_plan_reads_nothing(tasks: int, ranges: int) -> None:
    read = (OffsetRange(FLIGHTS, "flights", 0, 0, 5),) * ranges
    with pytest.raises(ValueError, match="neither a warm-up plan nor one that reads"):
        BatchPlan("readers", "m-1", 0, read, warm_up_tasks=tasks)


def test_plan_names_each_topic_once() -> None:
    other = uuid.UUID(int=99)
    ranges = (OffsetRange(FLIGHTS, "flights", 0, 0, 5), OffsetRange(other, "orders", 0, 0, 5))
    plan = BatchPlan("readers", "m-1", 4, ranges, (PlanTopic(FLIGHTS, "flights", 3),))
    expected = {PlanTopic(FLIGHTS, "flights", 3), PlanTopic(other, "orders", None)}
    assert set(plan.topics) == expected
    assert list(plan.topics) == sorted(plan.topics)


@pytest.mark.parametrize(
    ("values", "total"), [((), 0), ((None,), None), ((3, None), 3), ((0, None), 0), ((3, 4), 7)]
)
def test_a_sum_counts_known_values_and_is_unknown_without_any(
    values: tuple[int | None, ...], total: int | None
) -> None:
    assert sum_of_known(values) == total
