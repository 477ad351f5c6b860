"""Requests to the leaders of partitions: one to each of them, all under way at the same time.

ListOffsets calls topics by name, so a topic that was deleted and created again would answer for its
predecessor. Ids are therefore checked on first sight, and again when the last check is older than
a second or a leader refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.protocol.messages import ListOffsetsRequest, Node, OffsetForLeaderEpochRequest
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.topic_metadata import (
    LEADER_QUESTIONS,
    NO_LEADER,
    ClusterMetadata,
    KnownTopic,
    LeaderAnswers,
)

FORGET_AFTER_S: Final = 300.0
ATTEMPT_TIMEOUT_S: Final = 3.0
ASK_AGAIN: Final = frozenset({Reaction.RETRY, Reaction.REDISCOVER, Reaction.REFRESH_TOPICS})
"""Reactions upon which something that only reads is asked once more."""
LeaderRequest = ListOffsetsRequest | OffsetForLeaderEpochRequest
Errors = dict[TopicIdPartition, int]


class LeaderCache:
    """Topics by id, each with the time at which its id was last seen under its name.

    Args:
        max_age_s: Seconds after which an id is checked again.
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
        return {each for each in topic_ids if self._checked_at.get(each, never) < oldest}

    def learn(self, metadata: ClusterMetadata, asked: Iterable[TopicId] = ()) -> None:
        """Take over a Metadata response.

        Args:
            metadata: The response.
            asked: The ids that were asked for; those without a topic are gone.
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
        """Drop topics that nobody has asked for in a while, so that the cache is bounded."""
        for topic_id in [e for e, at in self._checked_at.items() if now - at > FORGET_AFTER_S]:
            del self._checked_at[topic_id]
            self.topics.pop(topic_id, None)
            self._errors.pop(topic_id, None)


class LeaderRequests:
    """Asks the leaders of partitions; used by the thread that uses the pool.

    Args:
        pool: Connections to brokers.
        leaders: Which topics there are and who leads them.
        refresh: Fetches fresh metadata of topics into `leaders`, until a deadline.
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
    ) -> tuple[LeaderAnswers, Errors]:
        """Return answers by partition, and the error codes of those that got none.

        A partition whose leader has moved is asked for once more after fresh metadata.

        Args:
            request: What is asked.
            partitions: Its partitions.
            deadline: When to stop waiting, in seconds of the monotonic clock.

        Raises:
            RequestError: Metadata could not be fetched in time.
            ProtocolError: An answer cannot be read.
        """
        partitions = frozenset(partitions)
        self._refresh(self._leaders.outdated({each.topic_id for each in partitions}), deadline)
        answers, errors = self._ask_once(request, partitions, deadline)
        again = {each for each, code in errors.items() if rule_for(code).lookup in ASK_AGAIN}
        if again:
            self._refresh({each.topic_id for each in again}, deadline)
            found, still = self._ask_once(request, again, deadline)
            answers.update(found)
            errors = {each: code for each, code in errors.items() if each not in again} | still
        return answers, errors

    def _ask_once(
        self, request: LeaderRequest, partitions: Iterable[TopicIdPartition], deadline: float
    ) -> tuple[LeaderAnswers, Errors]:
        """Send to every leader before waiting for the first, so that the slowest sets the time."""
        question = LEADER_QUESTIONS[type(request)]
        by_leader, errors = self._leaders.route(partitions)
        answers: LeaderAnswers = {}
        sent: list[tuple[Connection, list[TopicIdPartition]]] = []
        unanswered: list[TopicIdPartition] = []
        for node_id, asked in by_leader.items():
            values = question.to_wire(request, asked, self._leaders.topics)
            try:
                connection = self._pool.to(self._leaders.nodes[node_id], deadline)
                attempt_s = min(ATTEMPT_TIMEOUT_S, deadline - time.monotonic())
                connection.send(question.message, values, attempt_s)
                sent.append((connection, asked))
            except RequestError:
                unanswered += asked
        for connection, asked in sent:
            try:
                values = connection.receive()
            except RequestError:
                unanswered += asked
                continue
            found, refused = question.from_wire(values, asked, self._leaders.topics)
            answers.update(found)
            errors.update(refused)
        errors.update(dict.fromkeys(unanswered, ErrorCode.NETWORK_EXCEPTION.value))
        return answers, errors
