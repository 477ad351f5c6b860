"""Requests to leaders, and the progress of a range."""

from __future__ import annotations

import uuid

from spark_groups.types import OffsetRange, TopicIdPartition
from spark_groups.wire.fetch.fetch_messages import (
    FetchCursor,
    fetch_from_wire,
    fetch_to_wire,
)
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import FETCH

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def cursor(topic_id: uuid.UUID, index: int, first: int, until: int) -> FetchCursor:
    return FetchCursor.of(OffsetRange(topic_id, f"t{topic_id.int}", index, first, until))


def test_a_request_groups_partitions_by_topic_and_keeps_their_order() -> None:
    cursors = [cursor(OTHER, 4, 10, 20), cursor(ONE, 0, 7, 9), cursor(OTHER, 1, 0, 1)]
    asked = [each.asked(30 + each.key.partition, 5_000_000) for each in cursors]
    wire = encode(
        FETCH.request, fetch_to_wire(asked, read_committed=True, max_bytes=40_000_000, rack="r")
    )
    values = decode(FETCH.request, wire)
    assert [each["topic_id"] for each in values["topics"]] == [OTHER, ONE]
    sent = [
        (each["partition"], each["current_leader_epoch"], each["fetch_offset"])
        for topic in values["topics"]
        for each in topic["partitions"]
    ]
    assert sent == [(4, 34, 10), (1, 31, 0), (0, 30, 7)]
    assert (values["isolation_level"], values["rack_id"], values["session_epoch"]) == (1, "r", -1)


def test_a_small_range_asks_for_little_and_learns_how_large_its_records_are() -> None:
    small = cursor(ONE, 0, 0, 10)
    assert 10 * 1024 < small.wanted_bytes(5_000_000) < 200_000
    large = cursor(ONE, 0, 0, 1_000_000)
    assert large.wanted_bytes(5_000_000) == 5_000_000
    large.move(999_000, 99_900_000)
    assert large.next_offset == 999_000
    assert 100_000 <= large.wanted_bytes(5_000_000) < 200_000
    assert not large.has_arrived
    large.move(1_000_000, 1)
    assert large.has_arrived


def test_answers_are_found_by_partition() -> None:
    answer = {"partition_index": 3, "error_code": 6}
    found = fetch_from_wire({"responses": ({"topic_id": ONE, "partitions": (answer,)},)})
    assert found == {TopicIdPartition(ONE, 3): answer}
