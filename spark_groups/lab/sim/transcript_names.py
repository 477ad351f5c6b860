"""The ids that stand behind the names of a transcript: recordings tell names only."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from spark_groups.lab.sim.chance import Bits
from spark_groups.types import Assignment, TopicId, TopicIdPartition

GENERATED: Final = "gen"
"""What a transcript calls a member whose id the coordinator made."""
OLD: Final = "(old)"
"""What a transcript puts behind the name of a topic that was deleted."""


@dataclass
class TranscriptNames:
    """Members and topics of a transcript, each with an id of its own.

    Args:
        chance: What ids are drawn from; the order in which a coordinator goes through members and
            topics follows from them.
    """

    chance: Bits
    _member_ids: dict[str, str] = field(default_factory=dict)
    _members: dict[str, str] = field(default_factory=dict)
    _topic_ids: dict[str, TopicId] = field(default_factory=dict)
    _topics: dict[TopicId, str] = field(default_factory=dict)

    def member_id(self, name: str | None) -> str:
        """Return the id of a member, "" where there is none."""
        if not name:
            return ""
        if name not in self._member_ids:
            self._note_member(name, str(self._new_id()))
        return self._member_ids[name]

    def member(self, member_id: str) -> str:
        """Return what the transcript calls a member."""
        if member_id not in self._members:
            self._note_member(GENERATED, member_id)
        return self._members[member_id]

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def _note_member(self, name: str, member_id: str) -> None:
        self._member_ids[name] = member_id
        self._members[member_id] = name

    def created(self, topic: str) -> TopicId:
        """Return the id of a topic that was just created."""
        topic_id = self._new_id()
        self._topic_ids[topic] = topic_id
        self._topics[topic_id] = topic
        return topic_id

    def deleted(self, topic: str) -> None:
        """Note that a topic is no more: its id stays known, as an old one."""
        topic_id = self.topic_id(topic)
        self._topics[topic_id] = topic + OLD
        self._topic_ids[topic + OLD] = topic_id

    def topic_id(self, topic: str) -> TopicId:
        """Return the id of a topic, or an id of its own for one that never was."""
        return self._topic_ids[topic] if topic in self._topic_ids else self.created(topic)

    def topic(self, topic_id: TopicId) -> str:
        """Return what the transcript calls a topic by now."""
        return self._topics[topic_id]

    def key(self, text: str) -> TopicIdPartition:
        """Read a partition as a transcript writes it: `foo-0`."""
        topic, _, partition = text.rpartition("-")
        return TopicIdPartition(self.topic_id(topic), int(partition))

    def partitions(self, keys: Iterable[TopicIdPartition]) -> dict[str, list[int]]:
        """Write partitions by topic, sorted."""
        by_topic = Assignment(frozenset(keys)).by_topic()
        named = {self.topic(topic_id): list(indexes) for topic_id, indexes in by_topic.items()}
        return dict(sorted(named.items()))

    def text(self, message: str) -> str:
        """Return a message with names in place of ids."""
        for member_id, name in self._members.items():
            message = message.replace(member_id, name)
        return message
