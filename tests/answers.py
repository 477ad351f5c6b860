"""Answers about partitions, from values and from the error codes of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    EpochEnd,
    ListedOffset,
    ListOffsetsResponse,
    OffsetAndMetadata,
    OffsetFetchResponse,
    OffsetForLeaderEpochResponse,
    PartitionError,
)
from spark_groups.types import TopicIdPartition

NONE: Mapping[TopicIdPartition, Any] = MappingProxyType({})


def failed(errors: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, PartitionError]:
    return {key: PartitionError(int(code)) for key, code in errors.items()}


def fetch_answer(
    offsets: Mapping[TopicIdPartition, OffsetAndMetadata] = NONE,
    errors: Mapping[TopicIdPartition, int] = NONE,
) -> OffsetFetchResponse:
    return OffsetFetchResponse(answers={**offsets, **failed(errors)})


def list_answer(
    offsets: Mapping[TopicIdPartition, int] = NONE,
    errors: Mapping[TopicIdPartition, int] = NONE,
    leader_epochs: Mapping[TopicIdPartition, int] = NONE,
) -> ListOffsetsResponse:
    found = {
        key: ListedOffset(offset, leader_epochs.get(key, NO_LEADER_EPOCH))
        for key, offset in offsets.items()
    }
    return ListOffsetsResponse(answers={**found, **failed(errors)})


def epoch_answer(
    ends: Mapping[TopicIdPartition, EpochEnd] = NONE,
    errors: Mapping[TopicIdPartition, int] = NONE,
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(answers={**ends, **failed(errors)})
