"""Positions of owned partitions, and what responses change about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_groups.errors import DataLossError, SparkGroupsError
from spark_groups.offsets.commits import CommitQueue
from spark_groups.offsets.events import InternalTopicsHeld
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import Ledger, Phase
from spark_groups.offsets.resolution import PositionResolver, Resolved
from spark_groups.offsets.validation import PositionValidator
from spark_groups.protocol.events import Event
from spark_groups.protocol.member import Member
from spark_groups.types import Assignment, TopicId


@dataclass(slots=True)
class Positions:
    """Owned partitions and their positions."""

    member: Member
    ledger: Ledger
    commits: CommitQueue
    topics: TopicDirectory
    resolver: PositionResolver
    validator: PositionValidator
    emit: Callable[[Event], None]
    data_loss: str | None = field(default=None, init=False)
    """Why the query must fail because offsets are lost, if it must."""
    refusal: SparkGroupsError | None = field(default=None, init=False)
    """Why the query must fail because of its checkpoint or options, if it must."""
    _said_held: set[str] = field(default_factory=set, init=False)
    """The internal topics of which a held partition was reported."""

    @property
    def must_fail(self) -> bool:
        """Whether the query is about to fail: then no more requests for positions are sent."""
        return self.data_loss is not None or self.refusal is not None

    def check(self) -> None:
        """Raise what prevents the query from continuing.

        Raises:
            CheckpointError: The checkpoint is of another group.
            OptionsError: No record has the starting timestamp of a partition, or a later one.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.data_loss is not None:
            raise DataLossError(self.data_loss)

    def is_held(self, topic_id: TopicId) -> bool:
        """Return whether a topic is assigned and not read: an internal one that a pattern matches.

        False while its name is unknown.
        """
        name, is_internal = self.topics.name(topic_id), self.topics.is_internal(topic_id)
        subscription = self.member.config.subscription
        return is_internal and not subscription.reads(name or "", is_internal=True)

    def to_read(self, partitions: Assignment) -> Assignment:
        """Return partitions without those of topics that are not read."""
        held = {id_ for id_ in {key.topic_id for key in partitions} if self.is_held(id_)}
        if not held:
            return partitions
        return Assignment(frozenset(key for key in partitions if key.topic_id not in held))

    def assign(self, partitions: Assignment, member_epoch: int, now: float) -> None:
        """Begin a tenure of each partition."""
        self.ledger.assign(partitions, member_epoch)
        self.hold_internal(now)

    def hold_internal(self, now: float) -> None:
        """Hold partitions that are assigned and not read: nothing is committed for them."""
        held = [k for k in self.ledger.in_phase(Phase.FETCHING) if self.is_held(k.topic_id)]
        for key in held:
            self.ledger.owned[key].phase = Phase.HELD
        names = {self.topics.name(key.topic_id) or "" for key in held} - self._said_held
        if names:
            self._said_held |= names
            pattern = self.member.config.subscription.topic_regex or ""
            self.emit(InternalTopicsHeld(now, tuple(sorted(names)), pattern))

    def take(self, resolved: Resolved) -> None:
        """Apply what follows from a response."""
        for event in resolved.events:
            self.emit(event)
        self.data_loss = resolved.data_loss or self.data_loss
        self.refusal = resolved.refusal or self.refusal
        self.commits.add(
            self.ledger.commit_of_position(key, self.member.member_epoch)
            for key in resolved.to_commit
        )
