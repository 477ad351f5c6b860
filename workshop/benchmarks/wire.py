"""How long the wire layer takes: encoding and decoding beside kio, and round trips to a broker.

    python workshop/benchmarks/wire.py [BOOTSTRAP_SERVERS TOPIC...]

With an address, ListOffsets of all partitions of each topic is timed as well.
"""

from __future__ import annotations

import statistics
import sys
import time
import timeit
import uuid
from collections.abc import Callable
from typing import Any

from spark_groups.group.member.messages import ListOffsetsRequest, MetadataRequest
from spark_groups.types import LATEST_TIMESTAMP, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import (
    CONSUMER_GROUP_HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT_V10,
    Struct,
)

ROUNDS = 200

HEARTBEAT_REQUEST = {
    "group_id": "flights",
    "member_id": "f1c9c4be-7d3b-4c06-9d3b-0f5b9a2b7c11",
    "member_epoch": 7,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": 45_000,
    "subscribed_topic_names": ("flights",),
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": ({"topic_id": uuid.uuid4(), "partitions": tuple(range(6))},),
}
HEARTBEAT_RESPONSE = {
    "throttle_time_ms": 0,
    "error_code": 0,
    "error_message": None,
    "member_id": "f1c9c4be-7d3b-4c06-9d3b-0f5b9a2b7c11",
    "member_epoch": 7,
    "heartbeat_interval_ms": 5000,
    "assignment": {
        "topic_partitions": ({"topic_id": uuid.uuid4(), "partitions": tuple(range(6))},)
    },
}
COMMIT_REQUEST = {
    "group_id": "flights",
    "generation_id_or_member_epoch": 7,
    "member_id": "f1c9c4be-7d3b-4c06-9d3b-0f5b9a2b7c11",
    "group_instance_id": None,
    "topics": (
        {
            "topic_id": uuid.uuid4(),
            "partitions": tuple(
                {
                    "partition_index": index,
                    "committed_offset": 1_000_000 + index,
                    "committed_leader_epoch": -1,
                    "committed_metadata": '{"partitions":1000}',
                }
                for index in range(1000)
            ),
        },
    ),
}
COMMIT_RESPONSE = {
    "throttle_time_ms": 0,
    "topics": (
        {
            "topic_id": uuid.uuid4(),
            "partitions": tuple({"partition_index": i, "error_code": 0} for i in range(1000)),
        },
    ),
}
LIST_OFFSETS_RESPONSE = {
    "throttle_time_ms": 0,
    "topics": (
        {
            "name": "flights",
            "partitions": tuple(
                {
                    "partition_index": index,
                    "error_code": 0,
                    "timestamp": -1,
                    "offset": 1_000_000,
                    "leader_epoch": 0,
                }
                for index in range(1000)
            ),
        },
    ),
}
METADATA_RESPONSE = {
    "throttle_time_ms": 0,
    "brokers": ({"node_id": 1, "host": "localhost", "port": 9092, "rack": None},),
    "cluster_id": "abc",
    "controller_id": 1,
    "topics": (
        {
            "error_code": 0,
            "name": "flights",
            "topic_id": uuid.uuid4(),
            "is_internal": False,
            "partitions": tuple(
                {
                    "error_code": 0,
                    "partition_index": index,
                    "leader_id": 1,
                    "leader_epoch": 0,
                    "replica_nodes": (1, 2, 3),
                    "isr_nodes": (1, 2, 3),
                    "offline_replicas": (),
                }
                for index in range(1000)
            ),
            "topic_authorized_operations": -2147483648,
        },
    ),
}

MEASURED: tuple[tuple[str, Any, str, dict[str, Any]], ...] = (
    ("heartbeat request", CONSUMER_GROUP_HEARTBEAT, "request", HEARTBEAT_REQUEST),
    ("heartbeat response", CONSUMER_GROUP_HEARTBEAT, "response", HEARTBEAT_RESPONSE),
    ("commit of 1,000 partitions", OFFSET_COMMIT_V10, "request", COMMIT_REQUEST),
    ("its response", OFFSET_COMMIT_V10, "response", COMMIT_RESPONSE),
    ("end offsets of 1,000 partitions", LIST_OFFSETS, "response", LIST_OFFSETS_RESPONSE),
    ("metadata of 1,000 partitions", METADATA, "response", METADATA_RESPONSE),
)


def best_us(work: Callable[[], object]) -> float:
    """Return the best time of one call in microseconds."""
    timer = timeit.Timer(work)
    count, _ = timer.autorange()
    return min(timer.repeat(5, max(1, count // 5))) / max(1, count // 5) * 1e6


def kio_times_us(message: Any, part: str, schema: Struct, values: dict[str, Any]) -> str:
    """Return what kio takes for the same message, or a dash where it is not installed."""
    try:
        from kio.serial import entity_reader  # noqa: PLC0415

        from workshop.parts import wire_values  # noqa: PLC0415
    except ImportError:
        return f"{'—':>10}{'—':>10}"
    entity_type = wire_values.kio_entity_type(message, part)
    entity = wire_values.to_kio(entity_type, values, schema)
    whole, read = encode(schema, values), entity_reader(entity_type)
    write_us, read_us = (
        best_us(lambda: wire_values.kio_bytes(entity)),
        best_us(lambda: read(whole, 0)),
    )
    return f"{write_us:>10.1f}{read_us:>10.1f}"


def codec_times() -> None:
    """Print the time of each message, in microseconds, ours and kio's."""
    print(f"{'us':34}{'encode':>10}{'decode':>10}{'kio enc':>10}{'kio dec':>10}")  # noqa: T201
    for title, message, part, values in MEASURED:
        schema = getattr(message, part)
        whole = encode(schema, values)
        ours = [
            best_us(lambda s=schema, v=values: encode(s, v)),  # type: ignore[misc]
            best_us(lambda s=schema, w=whole: decode(s, w)),  # type: ignore[misc]
        ]
        theirs = kio_times_us(message, part, schema, values)
        print(f"{title:34}{ours[0]:>10.1f}{ours[1]:>10.1f}{theirs}")  # noqa: T201


def list_offsets_times(bootstrap_servers: str, topics: list[str]) -> None:
    """Print how long the end offsets of all partitions of each topic take, in milliseconds."""
    with Cluster(bootstrap_servers) as cluster:
        known = cluster.metadata(MetadataRequest(topic_names=frozenset(topics))).topics
        for topic in sorted(known, key=lambda each: each.partition_count):
            every = range(topic.partition_count)
            request = ListOffsetsRequest(
                partitions=frozenset(TopicIdPartition(topic.topic_id, index) for index in every),
                timestamp_ms=LATEST_TIMESTAMP,
            )
            times_ms = []
            for _ in range(ROUNDS):
                started_s = time.perf_counter()
                answer = cluster.list_offsets(request)
                times_ms.append((time.perf_counter() - started_s) * 1000)
            print(  # noqa: T201
                f"end offsets of {len(answer.answers)} partitions:"
                f" median {statistics.median(times_ms):.2f} ms, worst {max(times_ms):.2f} ms"
            )


if __name__ == "__main__":
    codec_times()
    if len(sys.argv) > 1:
        list_offsets_times(sys.argv[1], sys.argv[2:])
