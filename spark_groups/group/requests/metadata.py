"""Metadata: names of topics, and missing or deleted topics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from spark_groups.errors import Reaction, rule_for
from spark_groups.group.ledger.events import TopicDeleted, TopicRecreated, TopicsMissing, UnreadRows
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import MetadataRequest, MetadataResponse, RequestFailed
from spark_groups.group.requests.describe import TargetAssignment
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

ASK_AGAIN_S: Final = 0.5
BELIEVED_S: Final = 3.0
"""How long brokers must report a topic missing before the client believes it, and how long the
group has to assign a topic that was found."""


class AbsentTopics:
    """Subscribed topics that no broker knows.

    A new topic is not known to every broker at once. AvailableNow retries for some time; other
    queries are assigned such a topic once it exists.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether it matters: under AvailableNow."""
        self.missing: tuple[str, ...] = ()
        """Topics that do not exist, sorted."""
        self.near: Mapping[str, str] = {}
        """By the name of a topic that did not exist at the beginning: a topic that may be meant."""
        self._since: dict[str, float] = {}
        """When brokers first reported a topic missing."""
        self._found_at: dict[str, float] = {}
        """When a missing topic was found, until the group must have assigned it."""
        self._ask_at = 0.0
        self._request = MetadataRequest()
        """The last request for names whose sending is known."""
        self._sent_at = 0.0
        """When it was sent; seconds."""

    @property
    def in_doubt(self) -> frozenset[str]:
        """Topics that may not exist, or were found recently."""
        return frozenset() if self.missing else self._asked

    @property
    def _asked(self) -> frozenset[str]:
        """Topics to ask for: a missing one may have been created during a long batch."""
        return frozenset(self._since) | frozenset(self._found_at) if self.is_wanted else frozenset()

    def due_at(self) -> float | None:
        """Return when to retry, None if there is nothing to ask for."""
        return self._ask_at if self._asked else None

    def next_request(self, now: float) -> MetadataRequest | None:
        """Return the request for topics that are missing or in doubt, None if none is due."""
        asked = self._asked
        if not asked or now < self._ask_at:
            return None
        return self.sent(MetadataRequest(topic_names=asked), now)

    def sent(self, request: MetadataRequest, now: float) -> MetadataRequest:
        """Note when a request for the names of topics was sent, and return it."""
        self._request, self._sent_at = request, now
        return request

    def learn(self, request: MetadataRequest, response: MetadataResponse, now: float) -> None:
        """Process metadata."""
        self.near = {**self.near, **response.near}
        # Brokers return errors such as LEADER_NOT_AVAILABLE only for topics that exist.
        there = {topic.name for topic in response.topics} | response.errors.keys()
        for name in request.topic_names | (self._since.keys() & there):
            if name not in there:
                self._since.setdefault(name, now)
                self._found_at.pop(name, None)
            elif self._since.pop(name, None) is not None:
                self._found_at[name] = now
            elif now - self._found_at.get(name, now) >= BELIEVED_S:
                del self._found_at[name]
        self._ask_at = now + ASK_AGAIN_S
        # Only a response without the topic counts, not time without a response.
        absent = request.topic_names & self._since.keys()
        # A response may arrive late: it is as old as its request. When another request was sent is
        # not known.
        sent_at = self._sent_at if request is self._request else -math.inf
        believed = {name for name in absent if sent_at - self._since[name] >= BELIEVED_S}
        kept = self._since.keys() & frozenset(self.missing)
        self.missing = tuple(sorted(believed | kept))


class DeletedTopics:
    """Topics without owned partitions: a revocation does not show whether a topic was deleted.

    Each is looked up once after its last partition was revoked.
    """

    def __init__(self, ledger: Ledger, topics: TopicDirectory) -> None:
        self.unread_when_dropped: dict[TopicIdPartition, int] = {}
        """Rows of partitions, when they were dropped, that are known to be unread."""
        self._ledger = ledger
        self._topics = topics
        self._answered: set[TopicId] = set()

    def look(self) -> None:
        """Note owned topics: they are looked up again after the next revocation."""
        if self._answered:
            self._answered &= self._given_up()

    def next_request(self, _now: float) -> MetadataRequest | None:
        """Return the request for revoked topics, None if there are none."""
        if not self.unread_when_dropped:
            return None
        wanted = self._given_up() - self._answered
        return MetadataRequest(topic_ids=frozenset(wanted)) if wanted else None

    def learn(
        self, request: MetadataRequest, response: MetadataResponse, now: float
    ) -> list[TopicDeleted]:
        """Process metadata; return the deleted topics of the request, each once."""
        there = {topic.topic_id for topic in response.topics}
        asked = (request.topic_ids & self._given_up()) - self._answered
        self._answered |= asked
        unread: Counter[TopicId] = Counter()
        for key, rows in self.unread_when_dropped.items():
            unread[key.topic_id] += rows
        return [
            TopicDeleted(now, self._topics.name(each) or str(each), each, UnreadRows(unread[each]))
            for each in sorted(asked - there)
        ]

    def _given_up(self) -> set[TopicId]:
        return {key.topic_id for key in self.unread_when_dropped} - self._ledger.topic_ids()

    def forget(self, topic_id: TopicId) -> UnreadRows:
        """Drop a topic that was created again; return which of its rows were not read."""
        keys = [key for key in self.unread_when_dropped if key.topic_id == topic_id]
        return UnreadRows(sum(self.unread_when_dropped.pop(key) for key in keys))


@dataclass(slots=True)
class TopicNames:
    """Looks up subscribed topics at the beginning, and names of topic ids."""

    first_wait_s: ClassVar = 5.0

    positions: Positions
    target: TargetAssignment
    absent: AbsentTopics
    deleted: DeletedTopics
    coordinator: Coordinator
    pause: Backoff
    _baseline_wanted: bool = field(default=True, init=False)
    """True until subscribed topics were looked up at the beginning."""
    _asked_ahead: Assignment = field(default=NO_PARTITIONS, init=False)
    """Pending partitions whose topics' names were asked for before the assignment."""

    @property
    def has_baseline(self) -> bool:
        """True once the subscribed topics were looked up at the beginning."""
        return not self._baseline_wanted

    def ask_baseline(self, now: float) -> MetadataRequest | None:
        """Look up the subscribed topics; nothing else is requested before."""
        if not self._baseline_wanted:
            return None
        request = MetadataRequest(topic_names=self._subscribed(), wants_near=True)
        return self.absent.sent(request, now)

    def next_request(self, _now: float) -> MetadataRequest | None:
        """Look up the names of assigned topics, and once those of pending partitions."""
        topics = self.positions.topics
        unknown = topics.unknown(self.positions.ledger.topic_ids())
        # Each description makes a new value.
        if self.target.pending is not self._asked_ahead and self.target.pending:
            asked, self._asked_ahead = self._asked_ahead, self.target.pending
            pending = frozenset(key.topic_id for key in self._asked_ahead.partitions)
            unknown |= topics.unknown(pending - {key.topic_id for key in asked.partitions})
        return MetadataRequest(topic_ids=unknown) if unknown else None

    def answered(self, request: MetadataRequest, response: MetadataResponse, now: float) -> None:
        """Process metadata."""
        self.absent.learn(request, response, now)
        for gone in self.deleted.learn(request, response, now):
            self.positions.emit(gone)
        topics = self.positions.topics
        for topic in response.topics:
            old_id = topics.learn(topic)
            if old_id is not None:
                unread = self.deleted.forget(old_id)
                self.positions.emit(TopicRecreated(now, topic.name, old_id, topic.topic_id, unread))
        self.positions.hold_internal(now)
        for name, code in response.errors.items():
            reaction = rule_for(code).lookup
            if reaction is Reaction.FAIL:
                self.coordinator.react(reaction, code, "Metadata", now, [name])
                return
        if (
            self._baseline_wanted
            and not response.errors
            and request.topic_names == self._subscribed()
        ):
            self._baseline_wanted = False
            missing = request.topic_names - {topic.name for topic in response.topics}
            topics.saw_absent(missing)
            if missing:
                self.positions.emit(TopicsMissing(now, tuple(sorted(missing)), response.near))
        self.end_initial_topics()
        unknown = topics.unknown(request.topic_ids)
        there = {topic.topic_id for topic in response.topics}
        self.positions.ledger.note_topics(there=there, gone=unknown)
        self.pause.ended(now, accepted=not (response.errors or unknown))

    def failed(self, _request: MetadataRequest, _failure: RequestFailed, now: float) -> None:
        """Retry after a pause."""
        self.pause.failed(now)

    def end_initial_topics(self) -> None:
        """Treat later topics as new, once the first target assignment is complete and has names.

        Without DESCRIBE permission, the first assignment counts as complete.
        """
        owned_topics = self.positions.ledger.topic_ids()
        has_all = self.target.settled(self.positions.member.member_epoch)
        if (
            (has_all or (self.target.is_refused and owned_topics))
            and not self._baseline_wanted
            and not self.positions.topics.unknown(owned_topics)
        ):
            self.positions.topics.end_initial_topics()

    def _subscribed(self) -> frozenset[str]:
        return frozenset(self.positions.member.config.subscription.topic_names)
