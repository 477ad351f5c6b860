"""Every request can be answered with nothing but an error."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from spark_groups.lab.coordinator import messages as m
from spark_groups.lab.coordinator.messages import error_answer
from spark_groups.protocol.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicId, TopicIdPartition

FOO = TopicIdPartition(TopicId(int=1), 0)
SAMPLE = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 1,
    "group_epoch": 1,
    "partitions": frozenset(),
    "members": (),
    "offsets": {FOO: OffsetAndMetadata(1)},
}


@pytest.mark.parametrize(
    "kind",
    [*typing.get_args(m.CoordinatorRequest), m.KipHeartbeatRequest],
    ids=lambda k: k.__name__,
)
def test_every_request_can_be_refused(kind: type) -> None:
    named = {each.name for each in dataclasses.fields(kind)}
    request = kind(**{name: value for name, value in SAMPLE.items() if name in named})
    response = error_answer(request, 16)
    if isinstance(response, m.OffsetCommitResponse):
        assert response.errors == {FOO: 16}
    else:
        assert response.error_code == 16


def test_a_commit_is_refused_partition_by_partition() -> None:
    request = OffsetCommitRequest(
        group_id="g", member_id="m", member_epoch=1, offsets={FOO: OffsetAndMetadata(1)}
    )
    assert error_answer(request, 15).errors == {FOO: 15}
