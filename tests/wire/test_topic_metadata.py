"""Metadata, and requests to the leaders of partitions, as wire values."""

from __future__ import annotations

import uuid

from spark_groups.group.member.messages import (
    EpochLookup,
    ListedOffset,
    ListOffsetsRequest,
    Node,
    OffsetForLeaderEpochRequest,
    PartitionError,
    TopicMetadata,
)
from spark_groups.types import TopicIdPartition
from spark_groups.wire.leader_requests import answers_from_wire, request_to_wire
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from spark_groups.wire.topic_metadata import (
    ZERO_TOPIC_ID,
    Leader,
    metadata_from_wire,
    metadata_to_wire,
)

FLIGHTS, GONE, SECRET = (uuid.UUID(int=each) for each in (1, 2, 3))


def topic(error_code: int, name: str | None, topic_id: uuid.UUID, leaders=()) -> dict:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": 4,
                "replica_nodes": (1,),
                "isr_nodes": (1,),
                "offline_replicas": (),
            }
            for index, leader in enumerate(leaders)
        ],
        "topic_authorized_operations": -(2**31),
    }


def metadata_of(*topics: dict):
    values = {
        "throttle_time_ms": 0,
        "brokers": ({"node_id": 1, "host": "h", "port": 9, "rack": None},),
        "cluster_id": "c",
        "controller_id": 1,
        "topics": topics,
    }
    return metadata_from_wire(decode(METADATA.response, encode(METADATA.response, values)))


def test_asks_by_name_or_by_id_and_never_creates_topics() -> None:
    whole = encode(METADATA.request, metadata_to_wire(["b", "a"]))
    values = decode(METADATA.request, whole)
    assert values["topics"] == tuple({"topic_id": ZERO_TOPIC_ID, "name": e} for e in "ab")
    assert values["allow_auto_topic_creation"] is False
    assert metadata_to_wire(topic_ids=[FLIGHTS])["topics"] == [{"topic_id": FLIGHTS, "name": None}]
    assert metadata_to_wire()["topics"] == []


def test_reads_topics_leaders_and_errors() -> None:
    metadata = metadata_of(
        topic(0, "flights", FLIGHTS, leaders=(1, -1)),
        topic(3, "nope", ZERO_TOPIC_ID),
        topic(29, "secret", ZERO_TOPIC_ID),
        topic(100, None, GONE),
        topic(29, None, SECRET),
    )
    assert metadata.nodes == {1: Node(1, "h", 9)}
    assert metadata.topics[FLIGHTS].topic == TopicMetadata(FLIGHTS, "flights", 2)
    assert metadata.topics[FLIGHTS].leaders == {0: Leader(1, 4), 1: Leader(-1, 4)}
    assert metadata.errors == {"secret": 29}
    assert metadata.id_errors == {GONE: 100, SECRET: 29}


def test_list_offsets_of_one_leader() -> None:
    topics = metadata_of(topic(0, "flights", FLIGHTS, leaders=(1, 1, 1))).topics
    asked = [TopicIdPartition(FLIGHTS, index) for index in range(3)]
    request = ListOffsetsRequest(partitions=frozenset(asked), timestamp_ms=-1, read_committed=True)
    whole = encode(LIST_OFFSETS.request, request_to_wire(request, asked, topics))
    values = decode(LIST_OFFSETS.request, whole)
    assert (values["replica_id"], values["isolation_level"]) == (-1, 1)
    assert values["topics"][0]["name"] == "flights"
    assert values["topics"][0]["partitions"][2] == {
        "partition_index": 2,
        "current_leader_epoch": 4,
        "timestamp": -1,
    }

    def answer(index: int, error_code: int, offset: int) -> dict:
        return {
            "partition_index": index,
            "error_code": error_code,
            "timestamp": -1,
            "offset": offset,
            "leader_epoch": 4,
        }

    answers = [answer(0, 0, 12), answer(1, 6, -1), answer(7, 0, 99)]
    values = {"throttle_time_ms": 0, "topics": [{"name": "flights", "partitions": answers}]}
    wire = decode(LIST_OFFSETS.response, encode(LIST_OFFSETS.response, values))
    assert answers_from_wire(request, wire, asked, topics) == {
        asked[0]: ListedOffset(12, 4),
        asked[1]: PartitionError(6),
        asked[2]: PartitionError(-1),
    }


def test_ends_of_leader_epochs_of_one_leader() -> None:
    topics = metadata_of(topic(0, "flights", FLIGHTS, leaders=(1, 1))).topics
    asked = [TopicIdPartition(FLIGHTS, index) for index in range(2)]
    request = OffsetForLeaderEpochRequest(
        lookups={asked[0]: EpochLookup(2, 3), asked[1]: EpochLookup(2, 9)}
    )
    whole = encode(OFFSET_FOR_LEADER_EPOCH.request, request_to_wire(request, asked, topics))
    values = decode(OFFSET_FOR_LEADER_EPOCH.request, whole)
    assert values["replica_id"] == -1
    assert values["topics"][0]["topic"] == "flights"
    found = [tuple(each.values()) for each in values["topics"][0]["partitions"]]
    assert found == [(0, 4, 2), (1, 9, 2)], "the newest leadership that is known must answer"

    answers = [
        {"error_code": 0, "partition": 0, "leader_epoch": 1, "end_offset": 7},
        {"error_code": 74, "partition": 1, "leader_epoch": -1, "end_offset": -1},
    ]
    values = {"throttle_time_ms": 0, "topics": [{"topic": "flights", "partitions": answers}]}
    whole = encode(OFFSET_FOR_LEADER_EPOCH.response, values)
    wire = decode(OFFSET_FOR_LEADER_EPOCH.response, whole)
    assert answers_from_wire(request, wire, asked, topics) == {
        asked[0]: ListedOffset(7, 1),
        asked[1]: PartitionError(74),
    }
