"""Metadata: names of topics, those that do not exist yet, and those that were deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from spark_groups.client.channels import Channel
from spark_groups.client.positions import Positions
from spark_groups.client.requests.describe import TargetAssignment
from spark_groups.client.requests.find_coordinator import Coordinator
from spark_groups.errors import Reaction, rule_for
from spark_groups.offsets.events import TopicDeleted, TopicRecreated, TopicsMissing
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import Ledger
from spark_groups.protocol.backoff import Backoff
from spark_groups.protocol.messages import MetadataRequest, MetadataResponse, RequestFailed
from spark_groups.types import TopicId, TopicIdPartition

ASK_AGAIN_S: Final = 0.5
BELIEVED_S: Final = 3.0
"""How long brokers have to say that a topic does not exist until that is believed, and how long
the group has to plan the partitions of one that was found."""


class AbsentTopics:
    """Topics that are subscribed by name and that no broker knows: whether to believe it.

    A topic that was created a moment ago is not known to every broker. AvailableNow asks again for
    a while; a query that stays is given such a topic by the group once it exists.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether it matters: under AvailableNow."""
        self.missing: tuple[str, ...] = ()
        """Those that do not exist, sorted."""
        self._since: dict[str, float] = {}
        """When brokers first said that a topic does not exist, until one of them knows it."""
        self._found_at: dict[str, float] = {}
        """When names that had been absent were found, until the group must have planned them."""
        self._ask_at = 0.0

    @property
    def in_doubt(self) -> frozenset[str]:
        """Names that matter and may not exist, or were found a moment ago."""
        if not self.is_wanted or self.missing:
            return frozenset()
        return frozenset(self._since) | frozenset(self._found_at)

    def due_at(self) -> float | None:
        """Return when to ask again, None if nothing is in doubt."""
        return self._ask_at if self.in_doubt else None

    def next_request(self, now: float) -> MetadataRequest | None:
        """Return the request for what is in doubt, None if none is due."""
        in_doubt = self.in_doubt
        return MetadataRequest(topic_names=in_doubt) if in_doubt and now >= self._ask_at else None

    def learn(self, request: MetadataRequest, response: MetadataResponse, now: float) -> None:
        """Take what exists."""
        # An error such as LEADER_NOT_AVAILABLE is not told of a topic that does not exist.
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
        # Only an answer that names a topic absent counts, not the time that went by without one.
        absent = request.topic_names & self._since.keys()
        believed = {name for name in absent if now - self._since[name] >= BELIEVED_S}
        kept = self._since.keys() & frozenset(self.missing)
        self.missing = tuple(sorted(believed | kept))


class DeletedTopics:
    """Topics of which nothing is left: a revocation does not say whether they were deleted.

    Each is asked for once after it was given up altogether.

    Args:
        ledger: What is owned.
        topics: Names of topics.
    """

    def __init__(self, ledger: Ledger, topics: TopicDirectory) -> None:
        self.unread_left: dict[TopicIdPartition, int] = {}
        """Rows left unread in partitions when they were dropped."""
        self._ledger = ledger
        self._topics = topics
        self._answered: set[TopicId] = set()

    def look(self) -> None:
        """Take note of what is owned now: given up again, it is asked for again."""
        if self._answered:
            self._answered &= self._given_up()

    def next_request(self, _now: float) -> MetadataRequest | None:
        """Return the request for the topics that nobody has answered for, None if there is none."""
        if not self.unread_left:
            return None
        wanted = self._given_up() - self._answered
        return MetadataRequest(topic_ids=frozenset(wanted)) if wanted else None

    def learn(
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
        return {key.topic_id for key in self.unread_left} - self._ledger.topic_ids()

    def forget(self, topic_id: TopicId) -> int:
        """Drop what is known of a topic that was created again.

        Returns:
            How many rows of it were left unread.
        """
        keys = [key for key in self.unread_left if key.topic_id == topic_id]
        return sum(self.unread_left.pop(key) for key in keys)

    def _unread(self, topic_id: TopicId) -> int:
        return sum(rows for key, rows in self.unread_left.items() if key.topic_id == topic_id)


@dataclass(slots=True)
class TopicNames:
    """Asks which subscribed topics exist at the beginning, and for names of topic ids."""

    channel: ClassVar = Channel.CLUSTER
    timeout_s: ClassVar = 5.0

    positions: Positions
    target: TargetAssignment
    absent: AbsentTopics
    deleted: DeletedTopics
    coordinator: Coordinator
    pause: Backoff
    _baseline_wanted: bool = field(default=True, init=False)
    """True until it is known which subscribed topics exist at the beginning."""

    def ask_baseline(self, _now: float) -> MetadataRequest | None:
        """Ask which subscribed topics exist, until that is answered; nothing is asked before."""
        if not self._baseline_wanted:
            return None
        return MetadataRequest(topic_names=self._subscribed())

    def next_request(self, _now: float) -> MetadataRequest | None:
        """Ask for the names of topics that were assigned."""
        unknown = self.positions.topics.unknown(self.positions.ledger.topic_ids())
        return MetadataRequest(topic_ids=unknown) if unknown else None

    def answered(self, request: MetadataRequest, response: MetadataResponse, now: float) -> None:
        """Learn what exists, whatever was asked for."""
        self.absent.learn(request, response, now)
        for gone in self.deleted.learn(request, response, now):
            self.positions.emit(gone)
        topics = self.positions.topics
        for topic in response.topics:
            old_id = topics.learn(topic)
            if old_id is not None:
                unread = self.deleted.forget(old_id)
                self.positions.emit(TopicRecreated(now, topic.name, old_id, topic.topic_id, unread))
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
                self.positions.emit(TopicsMissing(now, tuple(sorted(missing))))
        self.end_first_sight()
        unknown = topics.unknown(request.topic_ids)
        there = {topic.topic_id for topic in response.topics}
        self.positions.ledger.note_topics(there=there, gone=unknown)
        if response.errors or unknown:
            self.pause.failed(now)
        else:
            self.pause.succeeded()

    def failed(self, _request: MetadataRequest, _failure: RequestFailed, now: float) -> None:
        """Ask again after a pause."""
        self.pause.failed(now)

    def end_first_sight(self) -> None:
        """Take what is subscribed at the beginning for known once all that was assigned has a name.

        Where nobody may say that this is all, the first assignment is taken for it: to begin what
        comes later at its beginning loses nothing.
        """
        owned_topics = self.positions.ledger.topic_ids()
        has_all = self.target.settled(self.positions.member.member_epoch)
        if (
            (has_all or (self.target.is_refused and owned_topics))
            and not self._baseline_wanted
            and not self.positions.topics.unknown(owned_topics)
        ):
            self.positions.topics.end_first_sight()

    def _subscribed(self) -> frozenset[str]:
        return frozenset(self.positions.member.config.subscription.topic_names)
