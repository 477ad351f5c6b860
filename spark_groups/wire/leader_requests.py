"""Requests to the leaders of partitions: one to each of them, all in parallel.

ListOffsets and OffsetForLeaderEpoch name topics, so a topic that was deleted and created again
would answer for its predecessor. Topic ids are therefore checked on first use, and again when the
last check is older than a second or a leader refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from spark_groups.errors import ErrorCode, ProtocolError, Reaction, rule_for
from spark_groups.group.member.messages import (
    UNANSWERED,
    ListedOffset,
    ListOffsetsRequest,
    Node,
    OffsetForLeaderEpochRequest,
    PartitionError,
)
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Message,
)
from spark_groups.wire.topic_metadata import NO_LEADER, ClusterMetadata, KnownTopic

FORGET_AFTER_S: Final = 300.0
ASK_AGAIN: Final = frozenset({Reaction.RETRY, Reaction.REDISCOVER, Reaction.REFRESH_TOPICS})
"""Reactions after which a read-only request is retried."""
_CONSUMER_REPLICA_ID: Final = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1

LeaderRequest = ListOffsetsRequest | OffsetForLeaderEpochRequest
Topics = Mapping[TopicId, KnownTopic]
LeaderAnswers = dict[TopicIdPartition, ListedOffset | PartitionError]
"""An offset and its leader epoch, or an error."""


def request_to_wire(
    request: LeaderRequest, partitions: Iterable[TopicIdPartition], topics: Topics
) -> Values:
    """Make the request to one leader about its partitions, from fresh metadata of their topics."""
    wire_topics: dict[str, list[Values]] = {}
    for each in partitions:
        known = topics[each.topic_id]
        leader_epoch = known.leaders[each.partition].leader_epoch
        asked: Values
        if isinstance(request, ListOffsetsRequest):
            asked = {
                "partition_index": each.partition,
                "current_leader_epoch": leader_epoch,
                "timestamp": request.timestamp_ms,
            }
        else:
            lookup = request.lookups[each]
            asked = {
                "partition": each.partition,
                # A leader that was deposed since must not answer.
                "current_leader_epoch": max(leader_epoch, lookup.current_leader_epoch),
                "leader_epoch": lookup.leader_epoch,
            }
        wire_topics.setdefault(known.topic.name, []).append(asked)
    values: Values = {"replica_id": _CONSUMER_REPLICA_ID}
    if isinstance(request, ListOffsetsRequest):
        values["isolation_level"] = _READ_COMMITTED if request.read_committed else _READ_UNCOMMITTED
    name_field = "name" if isinstance(request, ListOffsetsRequest) else "topic"
    values["topics"] = [
        {name_field: name, "partitions": asked} for name, asked in wire_topics.items()
    ]
    return values


def answers_from_wire(
    request: LeaderRequest,
    values: Values,
    partitions: Iterable[TopicIdPartition],
    topics: Topics,
) -> LeaderAnswers:
    """Read the answer of one leader; a partition missing in it gets UNKNOWN_SERVER_ERROR."""
    topic_field, index_field, offset_field = (
        ("name", "partition_index", "offset")
        if isinstance(request, ListOffsetsRequest)
        else ("topic", "partition", "end_offset")
    )
    answers = {
        (topic[topic_field], each[index_field]): each
        for topic in values["topics"]
        for each in topic["partitions"]
    }
    found: LeaderAnswers = {}
    for each in partitions:
        answer = answers.get((topics[each.topic_id].topic.name, each.partition))
        if answer is None:
            found[each] = UNANSWERED
        elif answer["error_code"]:
            found[each] = PartitionError(answer["error_code"])
        else:
            found[each] = ListedOffset(answer[offset_field], answer["leader_epoch"])
    return found


class LeaderCache:
    """Topics by id, each with the time at which its id was last seen under its name.

    Args:
        max_age_s: When to check an id again.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._checked_at: dict[TopicId, float] = {}
        self.nodes: Mapping[int, Node] = {}
        self.topics: dict[TopicId, KnownTopic] = {}
        self._errors: dict[TopicId, int] = {}

    def outdated(self, topic_ids: Iterable[TopicId]) -> set[TopicId]:
        """Return the ids that must be checked before they are used."""
        oldest = time.monotonic() - self._max_age_s
        never = float("-inf")
        return {
            topic_id for topic_id in topic_ids if self._checked_at.get(topic_id, never) < oldest
        }

    def learn(self, metadata: ClusterMetadata, asked: Iterable[TopicId] = ()) -> None:
        """Store a Metadata response.

        Args:
            asked: The requested ids; those without a topic are gone.
        """
        now = time.monotonic()
        self.nodes = metadata.nodes
        self._forget(now)
        for topic_id in {*asked, *metadata.topics}:
            self._checked_at[topic_id] = now
            self.topics.pop(topic_id, None)
            self._errors.pop(topic_id, None)
            if topic_id in metadata.topics:
                self.topics[topic_id] = metadata.topics[topic_id]
            elif topic_id in metadata.id_errors:
                self._errors[topic_id] = metadata.id_errors[topic_id]

    def route(
        self, partitions: Iterable[TopicIdPartition]
    ) -> tuple[dict[int, list[TopicIdPartition]], dict[TopicIdPartition, int]]:
        """Return partitions by the id of their leader, and error codes of those without one."""
        by_leader: dict[int, list[TopicIdPartition]] = {}
        errors: dict[TopicIdPartition, int] = {}
        for each in partitions:
            known = self.topics.get(each.topic_id)
            if known is None:
                gone = ErrorCode.UNKNOWN_TOPIC_ID.value
                errors[each] = self._errors.get(each.topic_id, gone)
                continue
            leader = known.leaders.get(each.partition)
            if leader is None:
                errors[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
            elif leader.node_id == NO_LEADER or leader.node_id not in self.nodes:
                errors[each] = ErrorCode.LEADER_NOT_AVAILABLE.value
            else:
                by_leader.setdefault(leader.node_id, []).append(each)
        return by_leader, errors

    def _forget(self, now: float) -> None:
        """Drop topics that were not requested for a while, so that the cache stays bounded."""
        for topic_id in [e for e, at in self._checked_at.items() if now - at > FORGET_AFTER_S]:
            del self._checked_at[topic_id]
            self.topics.pop(topic_id, None)
            self._errors.pop(topic_id, None)


def ask_each(
    pool: ConnectionPool,
    leaders: LeaderCache,
    message: Message,
    requests: Mapping[int, Values],
    deadline: float,
) -> Iterator[tuple[int, Values | RequestError | ProtocolError]]:
    """Send to every leader before waiting for the first, so that the slowest sets the time.

    Args:
        requests: By node id.
        deadline: Monotonic seconds.
    """
    sent: list[tuple[int, float, Connection]] = []
    for node_id, values in requests.items():
        node = leaders.nodes[node_id]
        try:
            wait_s = pool.patience(node).seconds()
            connection = pool.to(node, deadline, wait_s)
            now = time.monotonic()
            connection.send(message, values, min(wait_s, deadline - now))
            sent.append((node_id, now, connection))
        except (RequestError, ProtocolError) as error:
            yield node_id, error
    for node_id, sent_at, connection in sent:
        patience = pool.patience(connection.address)
        try:
            answer = connection.receive()
        except (RequestError, ProtocolError) as error:
            patience.failed(time.monotonic() - sent_at)
            yield node_id, error
        else:
            patience.answered(time.monotonic() - sent_at)
            yield node_id, answer


class LeaderRequests:
    """Sends requests to the leaders of partitions; used by the thread that uses the pool.

    Args:
        refresh: Fetches metadata of topics into `leaders`, until a deadline.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        leaders: LeaderCache,
        refresh: Callable[[set[TopicId], float], None],
    ) -> None:
        self._pool = pool
        self._leaders = leaders
        self._refresh = refresh

    def ask(
        self, request: LeaderRequest, partitions: Iterable[TopicIdPartition], deadline: float
    ) -> LeaderAnswers:
        """Return an answer or an error for each partition.

        A partition whose leader has moved, or does not answer for a while, is retried once after
        fresh metadata. A leader that is slow gets twice the time with each attempt.

        Args:
            deadline: Monotonic seconds.

        Raises:
            RequestError: Metadata could not be fetched in time.
            ProtocolError: An answer cannot be read.
        """
        partitions = frozenset(partitions)
        self._refresh(
            self._leaders.outdated({partition.topic_id for partition in partitions}), deadline
        )
        answers = self._ask_once(request, partitions, deadline)
        again = {
            key
            for key, answer in answers.items()
            if isinstance(answer, PartitionError)
            and rule_for(answer.error_code).lookup in ASK_AGAIN
        }
        if again:
            self._refresh({each.topic_id for each in again}, deadline)
            answers.update(self._ask_once(request, again, deadline))
        return answers

    def _ask_once(
        self, request: LeaderRequest, partitions: Iterable[TopicIdPartition], deadline: float
    ) -> LeaderAnswers:
        message = (
            LIST_OFFSETS if isinstance(request, ListOffsetsRequest) else OFFSET_FOR_LEADER_EPOCH
        )
        by_leader, errors = self._leaders.route(partitions)
        found: LeaderAnswers = {key: PartitionError(code) for key, code in errors.items()}
        topics = self._leaders.topics
        requests = {
            node_id: request_to_wire(request, asked, topics) for node_id, asked in by_leader.items()
        }
        for node_id, answer in ask_each(self._pool, self._leaders, message, requests, deadline):
            asked = by_leader[node_id]
            if isinstance(answer, ProtocolError):
                raise answer
            if isinstance(answer, RequestError):
                no_answer = PartitionError(ErrorCode.NETWORK_EXCEPTION.value)
                found.update(dict.fromkeys(asked, no_answer))
            else:
                found.update(answers_from_wire(request, answer, asked, topics))
        return found
