"""Positions of owned partitions, and what responses change about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from spark_groups.errors import (
    REPORT_IT,
    DataLossError,
    ErrorCode,
    SparkGroupsError,
    rule_for,
)
from spark_groups.group.ledger.commits import CommitQueue
from spark_groups.group.ledger.events import InternalTopicsHeld, PartitionsWait
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, Phase
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.truncation import PositionValidator
from spark_groups.group.member.events import Event
from spark_groups.group.member.member import Member
from spark_groups.types import Assignment, TopicId, TopicIdPartition

SAID_AFTER_S: Final = 3.0
"""How long a partition waits before the member reports it: most errors are over sooner."""


@dataclass(slots=True)
class Wait:
    """An owned partition waits, because requests about it fail.

    Args:
        tenure: The tenure in which it waits.
        phase: The step that does not end.
        since: When a request failed first, in seconds.
        request: Name of the request that failed last.
        code: Kafka's error code in the answer.
        said: The requests and codes that were reported.
    """

    tenure: int
    phase: Phase
    since: float
    request: str
    code: int
    said: set[tuple[str, int]] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.request} answers {ErrorCode.name_of(self.code)}{self.cure}"

    @property
    def cure(self) -> str:
        """What to do about it, in brackets; empty if there is no more than to wait."""
        remedy = rule_for(self.code).remedy
        return "" if remedy == REPORT_IT else f" ({remedy})"


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
    """Why the query must fail because offsets or records are gone, if it must."""
    refusal: SparkGroupsError | None = field(default=None, init=False)
    """Why the query must fail because of its checkpoint or options, if it must."""
    _said_held: set[str] = field(default_factory=set, init=False)
    """The internal topics of which a held partition was reported."""
    _waits: dict[TopicIdPartition, Wait] = field(default_factory=dict, init=False)
    _assigned_at: float = field(default=-inf, init=False)
    """When partitions were assigned last."""

    @property
    def must_fail(self) -> bool:
        """Whether the query is about to fail: then no more requests for positions are sent."""
        return self.data_loss is not None or self.refusal is not None

    @property
    def is_deciding(self) -> bool:
        """Whether finished runs will soon be committed or overruled."""
        return not self.must_fail and bool(self.ledger.deciding())

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

    def still_pending(self, pending: Assignment) -> Assignment:
        """Return those of partitions that other members owned which are read, and not owned yet."""
        return self.to_read(pending - self.member.owned)

    def assign(self, partitions: Assignment, member_epoch: int, now: float) -> None:
        """Begin a tenure of each partition."""
        self._assigned_at = now
        self.ledger.assign(partitions, member_epoch)
        self.topics.note_partitions(partitions)
        self.hold_internal(now)

    def is_resolving(self, since: float) -> bool:
        """Return whether a partition assigned since `since` is not ready."""
        return self._assigned_at >= since and bool(self.ledger.unready())

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

    def failed(self, request: str, codes: Mapping[TopicIdPartition, int], now: float) -> None:
        """Note partitions whose requests fail, and report those that have waited for a while.

        Args:
            codes: Kafka's error code for each.
        """
        waits = self._waits = self.waits()
        for key, code in codes.items():
            owned = self.ledger.owned.get(key)
            if owned is None or owned.phase is Phase.READY:
                continue
            wait = waits.setdefault(key, Wait(owned.tenure, owned.phase, now, request, code))
            wait.request, wait.code = request, code
        due: dict[tuple[str, str, str], list[TopicIdPartition]] = {}
        for key in sorted(codes.keys() & waits.keys()):
            wait = waits[key]
            if (request, wait.code) in wait.said or now - wait.since < SAID_AFTER_S:
                continue
            wait.said.add((request, wait.code))
            named = wait.request, ErrorCode.name_of(wait.code), wait.cure
            due.setdefault(named, []).append(key)
        for named, keys in due.items():
            self.emit(PartitionsWait(now, *named, tuple(keys)))

    def waits(self) -> dict[TopicIdPartition, Wait]:
        """Return the owned partitions that wait because requests about them fail."""
        return {
            key: wait
            for key, wait in self._waits.items()
            if (owned := self.ledger.owned.get(key))
            and (owned.tenure, owned.phase) == (wait.tenure, wait.phase)
        }
