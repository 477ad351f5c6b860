"""Requests to the leaders of partitions: one to each of them, all under way at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.protocol.messages import ListOffsetsRequest, OffsetForLeaderEpochRequest
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.leaders import LeaderCache
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.topic_metadata import LEADER_QUESTIONS, LeaderAnswers

ATTEMPT_TIMEOUT_S: Final = 3.0
ASK_AGAIN: Final = frozenset({Reaction.RETRY, Reaction.REDISCOVER, Reaction.REFRESH_TOPICS})
"""Reactions upon which something that only reads is asked once more."""

LeaderRequest = ListOffsetsRequest | OffsetForLeaderEpochRequest
Errors = dict[TopicIdPartition, int]


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
