"""Whether a topic of which nothing is left was deleted: a revocation does not say why it comes."""

from __future__ import annotations

from collections.abc import Mapping

from spark_groups.offsets.events import TopicDeleted
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import Ledger
from spark_groups.protocol.messages import MetadataRequest, MetadataResponse
from spark_groups.types import TopicId, TopicIdPartition


class DeletionWatch:
    """Asks once for each topic that was given up altogether, and tells when it is gone.

    Args:
        ledger: What is owned.
        topics: Names of topics.
        unread_left: Rows left unread in partitions when they were dropped.
    """

    def __init__(
        self,
        ledger: Ledger,
        topics: TopicDirectory,
        unread_left: Mapping[TopicIdPartition, int],
    ) -> None:
        self._ledger = ledger
        self._topics = topics
        self._unread_left = unread_left
        self._answered: set[TopicId] = set()

    def look(self) -> None:
        """Take note of what is owned now: given up again, it is asked for again."""
        if self._answered:
            self._answered &= self._given_up()

    def to_ask(self) -> MetadataRequest | None:
        """Return the request for the topics that nobody has answered for, None if there is none."""
        if not self._unread_left:
            return None
        wanted = self._given_up() - self._answered
        return MetadataRequest(topic_ids=frozenset(wanted)) if wanted else None

    def handle_metadata(
        self, request: MetadataRequest, response: MetadataResponse, now: float
    ) -> list[TopicDeleted]:
        """Take what exists; return the topics of the request that are gone, each once."""
        there = {topic.topic_id for topic in response.topics}
        asked = (request.topic_ids & self._given_up()) - self._answered
        self._answered |= asked
        return [
            TopicDeleted(now, self._topics.name(each) or str(each), each, self._unread(each))
            for each in sorted(asked - there)
        ]

    def _given_up(self) -> set[TopicId]:
        return {key.topic_id for key in self._unread_left} - self._ledger.topic_ids()

    def _unread(self, topic_id: TopicId) -> int:
        return sum(rows for key, rows in self._unread_left.items() if key.topic_id == topic_id)
