"""The plan in Spark's checkpoint: one text for one plan, and nothing else is taken for one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.errors import CheckpointError
from spark_groups.group.ledger.plan_text import (
    NOTHING_PLANNED,
    parse_plan_text,
    plan_as_json,
    plan_from_json,
    plan_text,
    planner_of,
)
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic

OFFSETS = st.integers(0, 2**62)
TOPICS = st.dictionaries(st.uuids(), st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True))
TEXTS = st.text(min_size=1, max_size=40)
MARKS = st.just("") | st.from_regex(r"[A-Za-z0-9_-]{11}", fullmatch=True)


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    ranges, topics, marks = [], [], []
    for topic_id, name in draw(TOPICS).items():
        indexes = draw(st.sets(st.integers(0, 20_000), max_size=8))
        is_read = bool(indexes) or draw(st.booleans())
        topics.append(PlanTopic(topic_id, name, draw(st.none() | st.integers(0, 20_000)), is_read))
        for partition in indexes:
            first, until = sorted((draw(OFFSETS), draw(OFFSETS)))
            ranges.append(OffsetRange(topic_id, name, partition, first, until))
            marks.append(draw(MARKS))
    epoch = draw(st.integers(0, 2**31 - 1))
    tasks = 0 if ranges else draw(st.integers(0, 64))
    by_range = tuple(sorted(ranges)), tuple(topics), tasks, tuple(marks)
    return BatchPlan(draw(TEXTS), draw(TEXTS), epoch, *by_range, draw(st.none() | TEXTS))


@given(plans())
def test_plan_comes_back_from_its_text(plan: BatchPlan) -> None:
    assert parse_plan_text(plan_text(plan)) == plan


@given(plans())
def test_text_survives_the_way_through_spark(plan: BatchPlan) -> None:
    # The runner dumps what the reader returns, and loads what the JVM harness back.
    written = json.dumps(plan_as_json(plan))
    assert json.dumps(json.loads(written)) == written == plan_text(plan)


@given(plans())
def test_order_of_the_ranges_does_not_change_the_text(plan: BatchPlan) -> None:
    who = (plan.group_id, plan.member_id, plan.member_epoch)
    shuffled = BatchPlan(
        *who,
        plan.ranges[::-1],
        plan.topics[::-1],
        plan.warm_up_tasks,
        plan.marks[::-1],
        plan.cluster_id,
    )
    assert plan_text(shuffled) == plan_text(plan)


@given(plans(), plans())
def test_two_plans_have_two_texts(one: BatchPlan, other: BatchPlan) -> None:
    assert (plan_text(one) == plan_text(other)) == (one == other)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(CheckpointError):
        plan_from_json(value)


def test_nothing_planned_is_a_constant() -> None:
    assert plan_text(None) == '{"version": 1}'
    assert parse_plan_text(plan_text(None)) is None
    assert plan_from_json(dict(NOTHING_PLANNED)) is None


VERSION_1 = (
    '{"version": 1, "group": "g", "member": "m", "member_epoch": 3, "topics":'
    ' {"AAAAAAAAAAAAAAAAAAAABw": {"name": "t", "ranges": "0:10+5"},'
    ' "AAAAAAAAAAAAAAAAAAAACA": {"name": "u", "ranges": ""}}}'
)


def test_a_plan_of_version_1_is_read_and_written_as_it_was() -> None:
    """Spark runs it again: what a listener reports of it must be the text in the checkpoint."""
    plan = parse_plan_text(VERSION_1)
    assert plan is not None
    assert [(each.name, each.known_count) for each in plan.topics] == [("t", None), ("u", None)]
    assert [len(each) for each in plan.ranges] == [5]
    assert plan_text(plan) == VERSION_1


def test_counts_make_a_plan_one_of_version_2() -> None:
    (topic_id, other_id) = (uuid.UUID(int=7), uuid.UUID(int=8))
    topics = (PlanTopic(topic_id, "t", 4), PlanTopic(other_id, "u"))
    ranges = (OffsetRange(topic_id, "t", 0, 10, 15),)
    assert plan_text(BatchPlan("g", "m", 3, ranges, topics)) == (
        '{"version": 2, "group": "g", "member": "m", "member_epoch": 3, "topics":'
        ' {"AAAAAAAAAAAAAAAAAAAABw": {"name": "t", "partitions": 4, "ranges": "0:10+5"},'
        ' "AAAAAAAAAAAAAAAAAAAACA": {"name": "u", "partitions": null, "ranges": ""}}}'
    )


def test_warm_up_tasks_make_a_plan_one_of_version_3() -> None:
    topics = (PlanTopic(uuid.UUID(int=7), "t"),)
    assert plan_text(BatchPlan("g", "m", 0, (), topics, warm_up_tasks=2)) == (
        '{"version": 3, "group": "g", "member": "m", "member_epoch": 0, "warm_up_tasks": 2,'
        ' "topics": {"AAAAAAAAAAAAAAAAAAAABw": {"name": "t", "partitions": null, "ranges": ""}}}'
    )


MARKED = (
    '{"version": 4, "cluster": "c", "group": "g", "member": "m", "member_epoch": 3, "topics":'
    ' {"AAAAAAAAAAAAAAAAAAAABw": {"name": "t", "partitions": 4,'
    ' "ranges": "0:10+5@k3Jx9aQb,1:20+5"}}}'
)


def test_marks_and_a_cluster_make_a_plan_one_of_version_4() -> None:
    topic_id = uuid.UUID(int=7)
    ranges = (OffsetRange(topic_id, "t", 0, 10, 15), OffsetRange(topic_id, "t", 1, 20, 25))
    topics = (PlanTopic(topic_id, "t", 4),)
    plan = BatchPlan("g", "m", 3, ranges, topics, marks=("k3Jx9aQb", ""), cluster_id="c")
    assert plan_text(plan) == MARKED
    assert [mark for _, mark in plan.marked_ranges()] == ["k3Jx9aQb", ""]


def test_a_mark_in_an_earlier_version_is_refused() -> None:
    text = MARKED.replace('"version": 4, "cluster": "c"', '"version": 2')
    with pytest.raises(CheckpointError, match="k3Jx9aQb"):
        parse_plan_text(text)


def test_ten_thousand_partitions_stay_below_350_kb() -> None:
    topic_id = uuid.UUID(int=7)
    first = 123_456_789_012
    ranges = tuple(OffsetRange(topic_id, "t", p, first, first + 12_345) for p in range(10_000))
    marks = ("k3Jx9aQb",) * len(ranges)
    plan = BatchPlan("group", str(uuid.UUID(int=3)), 9, ranges, marks=marks)
    assert len(plan_text(plan)) < 350_000


def example() -> dict[str, Any]:
    topic_id = uuid.UUID(int=7)
    ranges = (OffsetRange(topic_id, "t", 0, 10, 15),)
    plan = BatchPlan("g", "m", 3, ranges, (PlanTopic(topic_id, "t", 4),))
    value: dict[str, Any] = plan_as_json(plan)
    return value


def topic(**fields: object) -> dict[str, Any]:
    version = {"version": 4} if "read" in fields else {}
    return {**version, "topics": {TOPIC: {"name": "t", "partitions": 4, **fields}}}


TOPIC = next(iter(example()["topics"]))
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a newer version": ({"version": 5}, "newer version of spark-groups"),
    "a cluster in a version without it": ({"version": 2, "cluster": "c"}, "unknown cluster"),
    "a cluster without a name": ({"version": 4, "cluster": ""}, "cluster is ''"),
    "tasks in version 2": ({"warm_up_tasks": 2}, "unknown warm_up_tasks"),
    "a warm-up plan without tasks": ({"version": 3}, "lacks warm_up_tasks"),
    "no task": ({"version": 3, "warm_up_tasks": 0}, "warm_up_tasks is 0"),
    "tasks that are a truth value": (
        {"version": 3, "warm_up_tasks": True},
        "warm_up_tasks is True",
    ),
    "a warm-up plan with ranges": ({"version": 3, "warm_up_tasks": 2}, "warm-up plan with ranges"),
    "a topic whose read is true": (topic(read=True, ranges=""), "read is True"),
    "an unread topic with ranges": (topic(read=False, ranges="0:1+1"), "read is False"),
    "a count in version 1": ({"version": 1}, "unknown partitions"),
    "no version": ({"version": None}, "version is None"),
    "a version that is a truth value": ({"version": True}, "version is True"),
    "an epoch that is a truth value": ({"member_epoch": True}, "member_epoch is True"),
    "a negative epoch": ({"member_epoch": -1}, "member_epoch is -1"),
    "a group that is no text": ({"group": 5}, "group is 5"),
    "an empty member id": ({"member": ""}, "member is ''"),
    "topics that are a list": ({"topics": []}, "topics is not a JSON object"),
    "an unknown key": ({"time": 3}, "unknown time"),
    "a topic name for its id": ({"topics": {"t": {}}}, "'t' is not a Kafka topic id"),
    "a topic that is a text": ({"topics": {TOPIC: "0:1+1"}}, "is not a JSON object"),
    "a topic without ranges": (topic(), "lacks ranges"),
    "a topic without a count": (
        {"topics": {TOPIC: {"name": "t", "ranges": ""}}},
        "lacks partitions",
    ),
    "a count that is a text": (topic(partitions="4", ranges=""), "partitions is '4'"),
    "a count that is a truth value": (topic(partitions=True, ranges=""), "partitions is True"),
    "a negative count": (topic(partitions=-1, ranges=""), "partitions is -1"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_wrong_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        plan_from_json(example() | change)


@pytest.mark.parametrize("key", ["group", "member", "member_epoch", "topics"])
def test_missing_key_is_named(key: str) -> None:
    value = example()
    del value[key]
    with pytest.raises(CheckpointError, match=f"lacks {key}"):
        plan_from_json(value)


@pytest.mark.parametrize(
    "ranges",
    ["0", "0:1", "0:1-5", "0:-1+5", "-1:0+5", "00:1+5", "0:01+5", "0:1+5,", "0:1+5, 1:2+3"],
)
def test_wrong_range_is_named(ranges: str) -> None:
    with pytest.raises(CheckpointError, match=r"ranges is|<partition>:<first offset>"):
        plan_from_json(example() | topic(ranges=ranges))


def test_partition_that_is_named_twice_is_refused() -> None:
    with pytest.raises(CheckpointError, match="names partition 0 twice"):
        plan_from_json(example() | topic(ranges="0:1+5,0:6+5"))


@given(plans())
def test_planner_is_read_from_the_text_of_a_progress(plan: BatchPlan) -> None:
    assert planner_of(plan_text(plan)) == plan.member_id


@pytest.mark.parametrize(
    "text",
    [
        *("17", "None", "", "[1]", '"x"', '{"orders": {"0": 5}}', '{"member": 3}'),
        *(plan_text(None), pytest.param("[" * 4000, id="nested deeply")),
    ],
)
def test_ends_of_other_sources_have_no_planner(text: str) -> None:
    assert planner_of(text) is None


def test_text_that_is_not_json_is_refused() -> None:
    for text in ("{", "[" * 4000):
        with pytest.raises(CheckpointError, match="not JSON"):
            parse_plan_text(text)
