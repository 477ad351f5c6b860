"""Answers as fields with names of topics: how two are compared, and how one is shown."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from group_lab.coordinator.classic import messages as k
from spark_groups.errors import ProtocolError
from spark_groups.group.member import messages as m
from spark_groups.group.member.embedded import decode_assignment
from spark_groups.types import Assignment, TopicId, TopicIdPartition

ABSENT = "(absent)"
NOT_ORDERED = "subscribed_topic_names"
"""A set, which Java goes through in an order of its own."""
NOT_THE_COORDINATORS = "topic_names"


def fields_of(answer: object, names: Mapping[TopicId, str]) -> dict[str, object]:
    """Return everything that is compared of an answer, one entry a field.

    Args:
        answer: Any answer.
        names: Topics by id, for people.
    """
    if isinstance(answer, k.DescribeGroupsResponse):
        members = sorted(answer.members, key=lambda each: each.member_id)
        assigned = {each.member_id: _assigned(each.member_assignment) for each in members}
        plain = tuple(replace(each, member_assignment=b"") for each in members)
        return _values(replace(answer, members=plain), names) | {"assigned": assigned}
    if isinstance(answer, k.SyncGroupResponse):
        # Kafka writes the topics of a consumer group's assignment in the order of a Java map.
        return _values(answer, names) | {"assignment": _assigned(answer.assignment)}
    if not isinstance(answer, m.DescribeGroupResponse):
        return _values(answer, names)
    said = _values(answer, names)
    del said[NOT_THE_COORDINATORS], said["members"]
    for member in answer.members:
        values = _values(member, names) | {NOT_ORDERED: sorted(member.subscribed_topic_names)}
        said |= {f"{member.member_id} {name}": value for name, value in values.items()}
    return said


def _assigned(assignment: bytes) -> object:
    try:
        return decode_assignment(assignment) if assignment else assignment
    except ProtocolError:
        return assignment


def differences(broker: Mapping[str, object], model: Mapping[str, object]) -> Iterator[str]:
    """Name the fields that differ, with both values."""
    for name in dict.fromkeys((*broker, *model)):
        left, right = broker.get(name, ABSENT), model.get(name, ABSENT)
        if left != right:
            yield f"{name}: broker {left}, model {right}"


def in_short(value: object, names: Mapping[TopicId, str]) -> str:
    """Write a request or an answer with the fields that say anything."""
    said = fields_of(value, names)
    if dataclasses.is_dataclass(value):
        defaults = {each.name: each.default for each in dataclasses.fields(value)}
        said = {name: each for name, each in said.items() if each != defaults.get(name, ABSENT)}
    return ", ".join(f"{name}={each}" for name, each in said.items())


def _values(value: Any, names: Mapping[TopicId, str]) -> dict[str, object]:
    if dataclasses.is_dataclass(value):
        listed = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
        return {name: _plain(each, names) for name, each in listed}
    if isinstance(value, Mapping):
        return {str(_plain(key, names)): _plain(value[key], names) for key in sorted(value)}
    return {"answer": value}


def _plain(value: object, names: Mapping[TopicId, str]) -> object:
    """Replace topic ids with names; unknown ids stay."""
    match value:
        case Assignment():
            by_topic = value.by_topic().items()
            return {names.get(each, str(each)): list(indexes) for each, indexes in by_topic}
        case TopicIdPartition(topic_id, partition) | (uuid.UUID() as topic_id, int() as partition):
            return f"{names.get(topic_id, topic_id)}-{partition}"
        case Mapping():
            return {str(_plain(key, names)): _plain(value[key], names) for key in sorted(value)}
        case frozenset():
            return sorted(str(_plain(each, names)) for each in value)
        case _:
            return value
