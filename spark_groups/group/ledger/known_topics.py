"""Topics known to a member: names of ids, and partition counts when the group began to read them.

The known count of a topic is never raised; it is stored with committed offsets and in plans. If
neither has one, the member that begins to read the topic uses the count it saw first. The count
distinguishes partitions added later, which start at their beginning, from earlier ones, for which
`startingOffsets` applies. A topic that was created later, or that a pattern matches later, has
count 0; so has a topic that a checkpoint lacks, because it appeared while the query did not run: a
plan names the topics that the query has read, and the others that existed when it began.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from spark_groups.group.member.messages import TopicMetadata
from spark_groups.types import PlanTopic, TopicId, TopicIdPartition

MAX_TOPICS_REMEMBERED: Final = 1_000


class InCheckpoint(Enum):
    """What the query's checkpoint says of a topic."""

    NO_CHECKPOINT = "the query has no checkpoint"
    READ = "the checkpoint names the topic as read"
    UNREAD = "the checkpoint names the topic as unread"
    LACKED = "the checkpoint lacks the topic, which appeared while the query did not run"
    YOUNGER = "the checkpoint lacks the topic, which appeared while the query runs"


class Added(Enum):
    """When a partition was added."""

    BEFORE = "the partition is older than the group's first read of the topic"
    LATER = "the partition was added after the group's first read of the topic"
    WITH_TOPIC = "the topic appeared later than the group or the query"
    UNKNOWN = "it is unknown whether the partition was added later"


class TopicDirectory:
    """Names, partition counts and first counts of topics."""

    def __init__(self) -> None:
        self._topics: dict[TopicId, TopicMetadata] = {}
        self._seen_counts: dict[TopicId, int] = {}
        """The smallest count that each topic must have, by the partitions that were assigned."""
        self._first_counts: dict[TopicId, int] = {}
        self._ids_by_name: dict[str, TopicId] = {}
        self._absent_names: set[str] = set()
        self._initial_topics_over = False
        self._read: dict[TopicId, str] = {}
        self.has_checkpoint = False
        """Whether the query continues from a checkpoint; only `remember` changes it."""
        self._unread: dict[TopicId, PlanTopic] = {}
        self._left_unread: set[TopicId] = set()
        """Topics that existed when the query began, and that no earlier run has read."""
        self._checkpointed: set[TopicId] = set()
        self._known_counts: dict[TopicId, int] = {}
        self.created_again: set[TopicId] = set()
        """Topics whose names other topics had before; only this class changes them."""
        self._appeared_unseen: set[TopicId] = set()
        """Topics that appeared while the query did not run: its checkpoint lacks them."""

    def saw_absent(self, names: Iterable[str]) -> None:
        """Note subscribed topics that do not exist."""
        self._absent_names.update(name for name in names if name not in self._ids_by_name)

    def end_initial_topics(self) -> None:
        """Treat every topic learned from now on as created later."""
        self._initial_topics_over = True

    def remember(self, topics: Iterable[PlanTopic], *, of_this_group: bool) -> None:
        """Note the topics of a checkpoint, and that there is one.

        Args:
            topics: The topics of its last plan.
            of_this_group: Whether that was a plan of this group: then its counts are known counts.
        """
        self.has_checkpoint = True
        for topic in topics:
            self._ids_by_name.setdefault(topic.name, topic.topic_id)
            if not topic.is_read:
                self._unread[topic.topic_id] = topic
                self._left_unread.add(topic.topic_id)
                self._first_counts[topic.topic_id] = topic.known_count or 0
                continue
            self._read[topic.topic_id] = topic.name
            self._checkpointed.add(topic.topic_id)
            if of_this_group and topic.known_count is not None:
                self.note_count(topic.topic_id, topic.known_count)

    def in_checkpoint(self, topic_id: TopicId) -> InCheckpoint:
        """Return what the checkpoint says of a topic."""
        if topic_id in self._checkpointed:
            return InCheckpoint.READ
        if topic_id in self._left_unread:
            return InCheckpoint.UNREAD
        if topic_id in self._appeared_unseen:
            return InCheckpoint.LACKED
        return InCheckpoint.YOUNGER if self.has_checkpoint else InCheckpoint.NO_CHECKPOINT

    def added(self, key: TopicIdPartition, known_count: int) -> Added:
        """Return when a partition was added.

        Args:
            known_count: Partitions of the topic when the group began to read it. 0 means unknown,
                unless the topic was created after the group began.
        """
        if known_count == 0:
            return Added.UNKNOWN if self.first_count(key.topic_id) > 0 else Added.WITH_TOPIC
        return Added.BEFORE if key.partition < known_count else Added.LATER

    def note_read(self, topic_ids: Iterable[TopicId]) -> None:
        """Note topics whose partitions the query reads."""
        for topic_id in topic_ids:
            # Also if it cannot be remembered: a plan that reads it must not name it as unread.
            self._unread.pop(topic_id, None)
            if topic_id not in self._read and len(self._read) < MAX_TOPICS_REMEMBERED:
                self._read[topic_id] = self._topics[topic_id].name

    def has_read(self, topic_id: TopicId) -> bool:
        """Return whether this query has read a topic, also in an earlier run."""
        return topic_id in self._read

    def read(self) -> tuple[PlanTopic, ...]:
        """Return the topics that this query has read, also in earlier runs."""
        return tuple(
            PlanTopic(topic_id, name, self._known_counts.get(topic_id))
            for topic_id, name in self._read.items()
        )

    def unread(self) -> tuple[PlanTopic, ...]:
        """Return the topics that existed when this query began, and that it has not read."""
        return tuple(self._unread.values())

    def note_count(self, topic_id: TopicId, known_count: int) -> int:
        """Note a known count of a topic; return the smallest so far."""
        smallest = min(known_count, self._known_counts.get(topic_id, known_count))
        self._known_counts[topic_id] = smallest
        return smallest

    def known_count(self, topic_id: TopicId) -> int | None:
        """Return the partitions of a topic when the group began to read it, if known."""
        return self._known_counts.get(topic_id)

    def learn(self, topic: TopicMetadata) -> TopicId | None:
        """Store fresh metadata; return the former id of the name if the topic was created again."""
        before = self._ids_by_name.get(topic.name)
        is_new = before != topic.topic_id and (
            before is not None or self._initial_topics_over or topic.name in self._absent_names
        )
        if topic.topic_id not in self._first_counts:
            self._first_counts[topic.topic_id] = self._first_count(topic, is_new=is_new)
        self._topics[topic.topic_id] = topic
        self._ids_by_name[topic.name] = topic.topic_id
        if before is not None and before != topic.topic_id:
            self._read.pop(before, None)
            self._unread.pop(before, None)
            self.created_again.discard(before)
            self.created_again.add(topic.topic_id)
        self._absent_names.discard(topic.name)
        return before if before != topic.topic_id else None

    def _first_count(self, topic: TopicMetadata, *, is_new: bool) -> int:
        if is_new:
            return 0
        if self.has_checkpoint and topic.topic_id not in self._checkpointed:
            self._appeared_unseen.add(topic.topic_id)
            return 0
        if topic.topic_id not in self._read and len(self._unread) < MAX_TOPICS_REMEMBERED:
            known = PlanTopic(topic.topic_id, topic.name, topic.partition_count, is_read=False)
            self._unread[topic.topic_id] = known
        return topic.partition_count

    def name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic id, None if it is unknown."""
        topic = self._topics.get(topic_id)
        return topic.name if topic else None

    def is_internal(self, topic_id: TopicId) -> bool:
        """Return whether a topic is known to be internal to Kafka."""
        topic = self._topics.get(topic_id)
        return topic is not None and topic.is_internal

    def ids_of(self, names: Iterable[str]) -> set[TopicId]:
        """Return the ids of known topics among these names."""
        ids = {self._ids_by_name.get(name) for name in names}
        return {each for each in ids if each is not None and each in self._topics}

    def known_ids(self) -> set[TopicId]:
        """Return the ids of all topics with known names."""
        return set(self._topics)

    def note_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note partitions that exist: a broker that lags behind may not know of them yet."""
        for key in partitions:
            seen = self._seen_counts.get(key.topic_id, 0)
            self._seen_counts[key.topic_id] = max(seen, key.partition + 1)

    def partition_count(self, topic_id: TopicId) -> int:
        """Return the latest partition count of a topic."""
        seen_count = self._seen_counts.get(topic_id, 0)
        return max(self._topics[topic_id].partition_count, seen_count)

    def first_count(self, topic_id: TopicId) -> int:
        """Return the partition count of a topic when the member first saw it."""
        return self._first_counts[topic_id]

    def unknown(self, topic_ids: Iterable[TopicId]) -> frozenset[TopicId]:
        """Return the ids without a known name."""
        return frozenset(topic_ids).difference(self._topics)
