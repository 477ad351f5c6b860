"""The metadata of a committed offset.

It has the topic's partition count when the group began to read it, and says which commit it is
(`marks`). It shows offsets set by an operator, and those to which a member went back because the
log was truncated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from spark_groups.group.ledger.marks import MARK, NO_MARK
from spark_groups.group.member.messages import NO_OFFSET, OffsetAndMetadata
from spark_groups.types import TopicId, TopicIdPartition

# json.dumps would make one for each partition.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def commit_metadata(
    known_count: int,
    *,
    mark: str = NO_MARK,
    offset: int = NO_OFFSET,
    is_reset: bool = False,
    is_truncated: bool = False,
) -> str:
    """Return the metadata of an offset commit.

    Args:
        known_count: Partitions of the topic when the group began to read it.
        mark: The mark of a query's commit.
        offset: The committed offset, if there is a mark: a tool that writes another offset and
            keeps the metadata does not write a commit of a query.
        is_reset: Whether an operator set the offset.
        is_truncated: Whether the log was truncated to the offset, below what the group had read.
    """
    flags = {"reset": is_reset, "truncated": is_truncated}
    fields: dict[str, object] = {"partitions": known_count}
    if mark:
        fields |= {"mark": mark, "offset": offset}
    fields |= {name: True for name, is_set in flags.items() if is_set}
    return _ENCODER.encode(fields)


def partition_count_in(metadata: str) -> int | None:
    """Return the partition count in an offset's metadata, None if another client wrote it."""
    count = _fields(metadata).get("partitions")
    return count if type(count) is int and 0 <= count < 2**31 else None


def mark_of(committed: OffsetAndMetadata) -> str:
    """Return the mark of a commit, NO_MARK if no query of this version committed this offset."""
    fields = _fields(committed.metadata)
    mark, offset = fields.get("mark"), fields.get("offset")
    is_of_offset = type(offset) is int and offset == committed.committed_offset
    is_mark = isinstance(mark, str) and MARK.fullmatch(mark) is not None
    return str(mark) if is_of_offset and is_mark else NO_MARK


def is_reset(metadata: str) -> bool:
    """Return whether an operator set an offset with `spark-groups`."""
    return _fields(metadata).get("reset") is True


def is_truncated(metadata: str) -> bool:
    """Return whether a log was truncated to the offset, below what the group had read."""
    return _fields(metadata).get("truncated") is True


@lru_cache(maxsize=64)
def _fields(metadata: str) -> Mapping[str, object]:
    try:
        fields = json.loads(metadata)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def committed_topics(offsets: Mapping[TopicIdPartition, OffsetAndMetadata]) -> set[TopicId]:
    """Return the topics with any committed offset."""
    return {key.topic_id for key, each in offsets.items() if each.committed_offset != NO_OFFSET}


def known_counts(offsets: Mapping[TopicIdPartition, OffsetAndMetadata]) -> dict[TopicId, int]:
    """Return the partition counts in the metadata of committed offsets, by topic."""
    counts: dict[TopicId, int] = {}
    for key, committed in offsets.items():
        count = partition_count_in(committed.metadata)
        if committed.committed_offset != NO_OFFSET and count is not None:
            counts[key.topic_id] = min(count, counts.get(key.topic_id, count))
    return counts
