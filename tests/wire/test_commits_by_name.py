"""A commit by name while its topic is created again, on a broker that does it at will."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import Node, OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.schemas.codec import Values, decode, decode_start
from spark_groups.wire.schemas.wire_messages import (
    METADATA,
    OFFSET_COMMIT_V9,
    OFFSET_FETCH_V9,
    REQUEST_HEADER_V2,
    Message,
)
from tests.wire.listener import greet, listening, read_frame, response

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
KEY = TopicIdPartition(OLD, 0)
COMMIT = OffsetCommitRequest(
    group_id="g",
    member_id="m",
    member_epoch=5,
    offsets={KEY: OffsetAndMetadata(10, '{"partitions":1}', 3)},
)
ANY = {"throttle_time_ms": 0}


class ByName:
    """A coordinator of Kafka 4.0 with one topic, as far as commits see it."""

    def __init__(self) -> None:
        self.topic_id: TopicId = OLD
        self.stored: OffsetAndMetadata | None = None
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None
        self.commit_errors = [0, 0]
        self.asked: list[str] = []
        self.hangs_up = False

    def create_again(self) -> None:
        self.topic_id = NEW

    def __call__(self, peer: socket.socket) -> None:
        greet(
            peer,
            tuple(
                {"api_key": each.api_key, "min_version": 0, "max_version": each.version}
                for each in (METADATA, OFFSET_COMMIT_V9, OFFSET_FETCH_V9)
            ),
        )
        while frame := read_frame(peer):
            header, place = decode_start(REQUEST_HEADER_V2, frame)
            for message, reply in (
                (METADATA, self._metadata),
                (OFFSET_COMMIT_V9, self._commit),
                (OFFSET_FETCH_V9, self._fetch),
            ):
                if header["request_api_key"] == message.api_key:
                    if self.hangs_up and self.stored:
                        return
                    self._send(peer, message, header, reply(decode(message.request, frame, place)))

    def _send(self, peer: socket.socket, message: Message, header: Values, values: Values) -> None:
        peer.sendall(response(message, header["correlation_id"], {**ANY, **values}))

    def _metadata(self, asked: Values) -> Values:
        topics = []
        for each in asked["topics"]:
            self.asked.append("by id" if each["name"] is None else "by name")
            is_there = each["name"] == "t" or each["topic_id"] == self.topic_id
            partition = {
                "error_code": 0,
                "partition_index": 0,
                "leader_id": 1,
                "leader_epoch": 1,
                "replica_nodes": (),
                "isr_nodes": (),
                "offline_replicas": (),
            }
            topics.append(
                {
                    "error_code": 0 if is_there else int(ErrorCode.UNKNOWN_TOPIC_ID),
                    "name": "t" if is_there else None,
                    "topic_id": self.topic_id if is_there else each["topic_id"],
                    "is_internal": False,
                    "partitions": (partition,) if is_there else (),
                    "topic_authorized_operations": 0,
                }
            )
        return {"brokers": (), "cluster_id": "A", "controller_id": 1, "topics": topics}

    def _commit(self, asked: Values) -> Values:
        self.asked.append("commit")
        self.before_commit()
        error_code = self.commit_errors.pop(0)
        (topic,) = asked["topics"]
        (each,) = topic["partitions"]
        if not error_code:
            self.stored = OffsetAndMetadata(
                each["committed_offset"],
                each["committed_metadata"],
                each["committed_leader_epoch"],
            )
        self.after_commit()
        partition = {"partition_index": 0, "error_code": error_code}
        return {"topics": ({"name": topic["name"], "partitions": (partition,)},)}

    def _fetch(self, asked: Values) -> Values:
        self.asked.append("fetch")
        (group,) = asked["groups"]
        assert (group["member_id"], group["member_epoch"]) == ("m", 5)
        stored = self.stored
        partition = {
            "partition_index": 0,
            "committed_offset": stored.committed_offset if stored else -1,
            "committed_leader_epoch": stored.leader_epoch if stored else -1,
            "metadata": stored.metadata if stored else "",
            "error_code": 0,
        }
        topic = {"name": "t", "partitions": (partition,)}
        return {"groups": ({"group_id": "g", "topics": (topic,), "error_code": 0},)}


@contextmanager
def committing(broker: ByName) -> Iterator[Callable[[], int]]:
    """Give a function that sends the commit, and returns its error code."""
    with listening(broker) as port:
        connection = CoordinatorConnection()
        node = Node(1, "127.0.0.1", port)
        yield lambda: connection.send(node, COMMIT, 5.0).errors[KEY]  # type: ignore[union-attr]
        connection.close()


def test_a_topic_that_stays_is_looked_up_before_and_after() -> None:
    broker = ByName()
    with committing(broker) as commit:
        assert commit() == ErrorCode.NONE
    assert broker.asked == ["by id", "commit", "by id"]
    assert broker.stored == COMMIT.offsets[KEY]


def test_an_offset_that_a_new_topic_took_over_is_set_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ByName()
    broker.before_commit = broker.create_again
    with committing(broker) as commit:
        assert commit() == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.asked == ["by id", "commit", "by id", "by name", "fetch", "commit"]
    assert broker.stored == OffsetAndMetadata(0)
    assert "group g: t-0 was deleted and created again" in caplog.text
    assert "the new one is read from its beginning" in caplog.text


def test_an_offset_that_somebody_else_has_committed_since_stays() -> None:
    broker, theirs = ByName(), OffsetAndMetadata(4, "theirs")

    def goes_on() -> None:
        broker.create_again()
        broker.stored = theirs

    broker.after_commit = goes_on
    with committing(broker) as commit:
        assert commit() == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.stored == theirs


def test_an_offset_that_cannot_be_set_back_is_named(caplog: pytest.LogCaptureFixture) -> None:
    broker = ByName()
    broker.before_commit = broker.create_again
    broker.commit_errors = [0, int(ErrorCode.STALE_MEMBER_EPOCH)]
    with committing(broker) as commit:
        assert commit() == ErrorCode.UNKNOWN_TOPIC_ID
    assert "the new one may begin at 10; look with spark-groups describe" in caplog.text


def test_a_refused_commit_is_not_looked_up_again() -> None:
    broker = ByName()
    broker.commit_errors = [int(ErrorCode.STALE_MEMBER_EPOCH)]
    with committing(broker) as commit:
        assert commit() == ErrorCode.STALE_MEMBER_EPOCH
    assert broker.asked == ["by id", "commit"]


def test_a_commit_whose_topic_cannot_be_looked_up_again_may_have_arrived() -> None:
    broker = ByName()
    broker.hangs_up = True
    with committing(broker) as commit, pytest.raises(RequestError) as raised:
        commit()
    assert raised.value.may_have_arrived
