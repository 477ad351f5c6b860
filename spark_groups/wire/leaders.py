"""Which topics there are and who leads their partitions, as fresh as the answers need it.

ListOffsets calls topics by name, so a topic that was deleted and created again would answer for its
predecessor. Ids are therefore checked on first sight, and again when the last check is older than
a second or a leader refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import Node
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.topic_metadata import NO_LEADER, ClusterMetadata, KnownTopic

FORGET_AFTER_S: Final = 300.0


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
