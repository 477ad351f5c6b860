"""A broker of one topic with prepared answers to Fetch requests, and a fetcher for it."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.fetch.fetch_messages import FetchSettings
from spark_groups.wire.fetch.fetcher import Fetcher
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values, decode, decode_start
from spark_groups.wire.schemas.wire_messages import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    REQUEST_HEADER_V2,
    Message,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.transport import FrameBuffer
from tests.wire.listener import greet, listening, read_frame, response
from workshop.parts.waiting import LONG_S

TOPIC_ID = uuid.UUID(int=5)
SETTINGS = FetchSettings(
    read_committed=False,
    rack="",
    min_bytes=1,
    max_wait_ms=5,
    max_bytes=1_000_000,
    partition_max_bytes=100_000,
    request_timeout_s=LONG_S,
    poll_timeout_s=LONG_S,
)
APIS = tuple({"api_key": key, "min_version": 0, "max_version": 20} for key in (1, 2, 3))
NO_ERROR, OUT_OF_RANGE, NOT_LEADER, TOPIC_AUTHORIZATION = 0, 1, 6, 29

Answer = Callable[[int, int], Values | None]
"""From a partition and the offset that is asked for: what a broker says of it."""


def answered(**changes: object) -> Values:
    values = {
        "error_code": NO_ERROR,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    return {**values, **changes}


def ten_more(index: int, offset: int) -> Values:
    """Answer with ten offsets; what finds the next offset here reads one from the records."""
    return answered(records=b"%d" % (offset + 10))


def next_offset(records: memoryview, asked: int) -> int:
    return int(bytes(records))


class Broker:
    """A broker of one topic, as far as one who reads records sees it.

    Args:
        node_id: Its id.
        answer: What it says of a partition.
    """

    def __init__(self, node_id: int, answer: Answer = ten_more) -> None:
        self.node_id = node_id
        self.port = 0
        self.answer = answer
        self.cluster: list[Broker] = [self]
        self.leaders = {0: (node_id, 1), 1: (node_id, 1)}
        """Leader and leader epoch of each partition, as this broker knows them."""
        self.topic_id = TOPIC_ID
        self.offsets = {-2: 0, -1: 100}
        self.throttle_time_ms = 0
        self.asked: list[tuple[int, int]] = []
        """Partitions and offsets that were asked for."""
        self.looked_up = 0
        """How often its topics were asked for."""
        self.hang_up_next = False

    def __call__(self, peer: socket.socket) -> None:
        greet(peer, APIS)
        while frame := read_frame(peer):
            header, place = decode_start(REQUEST_HEADER_V2, frame)
            message, values = self._reply(header["request_api_key"], frame, place)
            if self.hang_up_next and message is FETCH:
                self.hang_up_next = False
                return
            peer.sendall(response(message, header["correlation_id"], values))

    def _reply(self, api_key: int, frame: bytes, place: int) -> tuple[Message, Values]:
        if api_key == METADATA.api_key:
            # Each new connection asks for the cluster, without a topic.
            self.looked_up += bool(decode(METADATA.request, frame, place)["topics"])
            return METADATA, self._metadata()
        if api_key == LIST_OFFSETS.api_key:
            asked = decode(LIST_OFFSETS.request, frame, place)
            return LIST_OFFSETS, self._list_offsets(asked)
        if api_key != FETCH.api_key:
            raise ConnectionError("a broker without SASL hangs up on who asks for it")
        return FETCH, self._fetch(decode(FETCH.request, frame, place))

    def _metadata(self) -> Values:
        partitions = [
            {
                "error_code": 0,
                "partition_index": index,
                "leader_id": leader_id,
                "leader_epoch": epoch,
                "replica_nodes": (),
                "isr_nodes": (),
                "offline_replicas": (),
            }
            for index, (leader_id, epoch) in self.leaders.items()
        ]
        topic = {
            "error_code": 0,
            "name": "t",
            "topic_id": self.topic_id,
            "is_internal": False,
            "partitions": partitions,
            "topic_authorized_operations": 0,
        }
        brokers = [
            {"node_id": each.node_id, "host": "127.0.0.1", "port": each.port, "rack": None}
            for each in self.cluster
        ]
        return {
            "throttle_time_ms": 0,
            "brokers": brokers,
            "cluster_id": None,
            "controller_id": 1,
            "topics": (topic,),
        }

    def _list_offsets(self, asked: Values) -> Values:
        (topic,) = asked["topics"]
        partitions = [
            {
                "partition_index": each["partition_index"],
                "error_code": 0,
                "timestamp": -1,
                "offset": self.offsets[each["timestamp"]],
                "leader_epoch": 1,
            }
            for each in topic["partitions"]
        ]
        return {"throttle_time_ms": 0, "topics": ({"name": "t", "partitions": partitions},)}

    def _fetch(self, asked: Values) -> Values:
        partitions = []
        for topic in asked["topics"]:
            for each in topic["partitions"]:
                self.asked.append((each["partition"], each["fetch_offset"]))
                answer = self.answer(each["partition"], each["fetch_offset"])
                if answer is not None:
                    partitions.append({"partition_index": each["partition"], **answer})
        throttle_time_ms, self.throttle_time_ms = self.throttle_time_ms, 0
        if throttle_time_ms:
            partitions = []
        return {
            "throttle_time_ms": throttle_time_ms,
            "error_code": 0,
            "session_id": 0,
            "responses": ({"topic_id": TOPIC_ID, "partitions": partitions},),
        }


@contextmanager
def reading(
    *brokers: Broker, settings: FetchSettings = SETTINGS, lost: list[str] | None = None
) -> Iterator[Fetcher]:
    """Run brokers as one cluster, and a fetcher that begins at the first of them."""
    with ExitStack() as stack:
        for each in brokers:
            each.port = stack.enter_context(listening(each, at_once=True))
            each.cluster = list(brokers)
        first = Address("127.0.0.1", brokers[0].port)
        cluster = stack.enter_context(Cluster(str(first), request_timeout_s=LONG_S))
        pool = ConnectionPool([first], client_id="t", security=Security())
        stack.callback(pool.close)

        def lose(what: str) -> None:
            if lost is None:
                raise AssertionError(what)
            lost.append(what)

        yield Fetcher(
            cluster, pool, FrameBuffer(10_000), settings, next_offset=next_offset, lose=lose
        )
