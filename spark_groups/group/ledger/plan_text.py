"""A batch plan as the offset in Spark's checkpoint, and back.

Spark compares offsets as JSON text, so one plan has exactly one text: keys in a fixed order, topics
and partitions sorted, nothing volatile. The ranges of a topic are one string, `<partition>:<first
offset>+<count>@<mark>` separated by commas, to keep checkpoints small.

    {"version": 4, "cluster": "5L6g...", "group": "flights", "member": "2f6b...",
     "member_epoch": 7, "topics": {"AbCd...": {"name": "departures", "partitions": 4,
                                   "ranges": "0:1000+50@k3Jx9aQb,3:980+12@Zp0dW1yT"}}}

Topics are keyed by id, because a topic that is deleted and created again is another topic. A topic
without ranges was read earlier. `partitions` is the topic's partition count when the group began to
read it, null if unknown. A topic with `"read": false` existed when the query began, and the query
has not read it yet. A mark names the commit on which a range stands (`marks`); a range
without one stands on the commit of another client. `cluster` is missing if the brokers report none.

A warm-up plan has no ranges, but the number of its tasks as `warm_up_tasks` after `member_epoch`.

Version 1 has no `partitions`, version 2 has them, version 3 is a warm-up plan; none has marks, a
cluster or unread topics. A plan without those is still written in the lowest version that can hold
it: a plan that Spark runs again must have the text in the checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark_groups.errors import CheckpointError
from spark_groups.group.ledger.marks import MARK
from spark_groups.types import (
    BatchPlan,
    OffsetRange,
    PlanTopic,
    TopicId,
    parse_topic_id,
    topic_id_text,
)

VERSION_WITHOUT_COUNTS: Final = 1
VERSION_WITH_COUNTS: Final = 2
WARM_UP_VERSION: Final = 3
MARKED_VERSION: Final = 4
NEWEST_VERSION: Final = MARKED_VERSION
NOTHING_PLANNED: Final[Mapping[str, object]] = {"version": VERSION_WITHOUT_COUNTS}
"""The offset before the first plan, the same for every query and version of this package: Spark
compares it with the checkpoint's."""

_PLAN_KEYS: Final = ("version", "group", "member", "member_epoch", "topics")
_WARM_UP_KEYS: Final = (*_PLAN_KEYS, "warm_up_tasks")
_KEYS_WITHOUT_COUNTS: Final = ("name", "ranges")
_TOPIC_KEYS: Final = ("name", "partitions", "ranges")
_RANGE: Final = re.compile(
    rf"(0|[1-9]\d{{0,9}}):(0|[1-9]\d{{0,18}})\+(0|[1-9]\d{{0,18}})(?:@({MARK.pattern}))?", re.ASCII
)


def plan_as_json(plan: BatchPlan) -> dict[str, object]:
    """Return a plan as the JSON value that a stream reader returns to Spark."""
    ranges: dict[TopicId, list[str]] = {topic.topic_id: [] for topic in plan.topics}
    for each, mark in sorted(plan.marked_ranges()):
        text = f"{each.partition}:{each.from_offset}+{len(each)}"
        ranges[each.topic_id].append(f"{text}@{mark}" if mark else text)
    version = _version(plan)
    has_counts = version != VERSION_WITHOUT_COUNTS
    return {
        "version": version,
        **({"cluster": plan.cluster_id} if plan.cluster_id else {}),
        "group": plan.group_id,
        "member": plan.member_id,
        "member_epoch": plan.member_epoch,
        **({"warm_up_tasks": plan.warm_up_tasks} if plan.warm_up_tasks else {}),
        "topics": {
            topic_id_text(topic.topic_id): {
                "name": topic.name,
                **({"partitions": topic.known_count} if has_counts else {}),
                "ranges": ",".join(ranges[topic.topic_id]),
                **({} if topic.is_read else {"read": False}),
            }
            for topic in plan.topics
        },
    }


def plan_text(plan: BatchPlan | None) -> str:
    """Return a plan as the text in Spark's checkpoint and progress; None: nothing planned yet."""
    return offset_text(NOTHING_PLANNED if plan is None else plan_as_json(plan))


def offset_text(offset: Mapping[str, object]) -> str:
    """Return the JSON value that a stream reader returns as the text in Spark's checkpoint."""
    # PySpark writes what a reader returns with json.dumps as it comes: so must this.
    return json.dumps(dict(offset))


def plan_from_json(value: object) -> BatchPlan | None:
    """Read the JSON value that Spark passes to a stream reader; None: nothing planned yet.

    Raises:
        CheckpointError: It is not an offset of this source, or is of a newer version.
    """
    if not isinstance(value, dict):
        raise _wrong("it is not a JSON object")
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise _wrong(f"version is {version!r}, not a number from 1")
    if version > NEWEST_VERSION:
        raise CheckpointError(
            f"the checkpoint holds an offset of version {version}, written by a newer version of"
            f" spark-groups; this one reads versions up to {NEWEST_VERSION}: upgrade spark-groups"
        )
    if value == NOTHING_PLANNED:
        return None
    is_marked = version == MARKED_VERSION
    required = _WARM_UP_KEYS if version == WARM_UP_VERSION else _PLAN_KEYS
    _check_keys(value, required, "it", optional=("cluster", "warm_up_tasks") if is_marked else ())
    member_epoch = value["member_epoch"]
    if type(member_epoch) is not int or member_epoch < 0:
        raise _wrong(f"member_epoch is {member_epoch!r}, not a number from 0")
    if not isinstance(value["topics"], dict):
        raise _wrong("topics is not a JSON object")
    topics = tuple(_topics(value["topics"], version))
    marked = sorted(_ranges(value["topics"], topics, has_marks=is_marked))
    return BatchPlan(
        group_id=_text(value, "group"),
        member_id=_text(value, "member"),
        member_epoch=member_epoch,
        ranges=tuple(each for each, _ in marked),
        topics=topics,
        warm_up_tasks=_warm_up_tasks(value, marked) if "warm_up_tasks" in value else 0,
        marks=tuple(mark for _, mark in marked),
        cluster_id=_text(value, "cluster") if "cluster" in value else None,
    )


def parse_plan_text(text: str) -> BatchPlan | None:
    """Read an offset in Spark's checkpoint or progress; None: nothing planned yet.

    Raises:
        CheckpointError: It is not an offset of this source, or is of a newer version.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"it is not JSON: {error}") from error
    return plan_from_json(value)


def planner_of(text: str) -> str | None:
    """Return the id of the member that planned a batch, None if it is of another source.

    Args:
        text: The batch's end offset in Spark's progress.
    """
    try:
        member_id = json.loads(text)["member"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return member_id if isinstance(member_id, str) else None


def _version(plan: BatchPlan) -> int:
    if plan.marks or plan.cluster_id or not all(topic.is_read for topic in plan.topics):
        return MARKED_VERSION
    if plan.warm_up_tasks:
        return WARM_UP_VERSION
    has_counts = any(topic.known_count is not None for topic in plan.topics)
    return VERSION_WITH_COUNTS if has_counts else VERSION_WITHOUT_COUNTS


def _warm_up_tasks(value: Mapping[str, object], ranges: Sequence[object]) -> int:
    tasks = value["warm_up_tasks"]
    if type(tasks) is not int or tasks < 1:
        raise _wrong(f"warm_up_tasks is {tasks!r}, not a number from 1")
    if ranges:
        raise _wrong("it is a warm-up plan with ranges")
    return tasks


def _topics(topics: Mapping[str, Any], version: int) -> Iterator[PlanTopic]:
    required = _KEYS_WITHOUT_COUNTS if version == VERSION_WITHOUT_COUNTS else _TOPIC_KEYS
    optional = ("read",) if version == MARKED_VERSION else ()
    for id_text, topic in topics.items():
        where = f"topics[{id_text!r}]"
        try:
            topic_id = parse_topic_id(id_text)
        except ValueError as error:
            raise _wrong(str(error)) from error
        if topic_id_text(topic_id) != id_text:
            raise _wrong(f"{id_text!r} is not a Kafka topic id")
        if not isinstance(topic, dict):
            raise _wrong(f"{where} is not a JSON object")
        _check_keys(topic, required, where, optional=optional)
        count = topic.get("partitions")
        if count is not None and (type(count) is not int or count < 0):
            raise _wrong(f"{where}: partitions is {count!r}, not a number from 0")
        is_read = "read" not in topic
        if not (is_read or (topic["read"] is False and topic["ranges"] == "")):
            raise _wrong(f"{where}: read is {topic['read']!r}, not false beside no ranges")
        yield PlanTopic(topic_id, _text(topic, "name"), count, is_read)


def _ranges(
    values: Mapping[str, Any], topics: Iterable[PlanTopic], *, has_marks: bool
) -> Iterator[tuple[OffsetRange, str]]:
    for each, (id_text, topic) in zip(topics, values.items(), strict=True):
        if topic["ranges"] != "":
            texts = _text(topic, "ranges").split(",")
            yield from _topic_ranges(each, texts, f"topics[{id_text!r}]", has_marks=has_marks)


def _topic_ranges(
    topic: PlanTopic, texts: Iterable[str], where: str, *, has_marks: bool
) -> Iterator[tuple[OffsetRange, str]]:
    seen: set[int] = set()
    for text in texts:
        found = _RANGE.fullmatch(text)
        mark = (found.group(4) or "") if found else ""
        if found is None or (mark and not has_marks):
            raise _wrong(f"{where}: {text!r} is not <partition>:<first offset>+<count>")
        partition, first, count = map(int, found.groups()[:3])
        if partition in seen:
            raise _wrong(f"{where} names partition {partition} twice")
        seen.add(partition)
        yield OffsetRange(topic.topic_id, topic.name, partition, first, first + count), mark


def _check_keys(
    value: Mapping[str, object],
    required: tuple[str, ...],
    where: str,
    *,
    optional: tuple[str, ...],
) -> None:
    missing = [key for key in required if key not in value]
    unknown = [key for key in value if key not in required and key not in optional]
    if missing:
        raise _wrong(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise _wrong(f"{where} has the unknown {', '.join(unknown)}")


def _text(value: Mapping[str, object], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text:
        raise _wrong(f"{key} is {text!r}, not a text")
    return text


def _wrong(reason: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint holds an offset that the kafka-group source did not write: {reason};"
        " give the query the checkpointLocation that it was started with, or a new one"
    )
