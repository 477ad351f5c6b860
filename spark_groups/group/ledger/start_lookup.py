"""Looks up the starting offsets of partitions: the beginning or end of a log, or a timestamp."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_groups.errors import OptionsError, rule_for
from spark_groups.group.ledger.data_loss import LossPolicy
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, Phase, StartLookup
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.starting import StartingOffsets, no_record
from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    UNANSWERED,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionError,
)
from spark_groups.types import LATEST_TIMESTAMP, TopicIdPartition, TopicPartition


@dataclass(slots=True)
class StartListing:
    """Moves owned partitions from LISTING to COMMITTING_START."""

    ledger: Ledger
    topics: TopicDirectory
    starting: StartingOffsets
    losses: LossPolicy
    read_committed: bool
    _listed_last: tuple[int, bool] | None = field(default=None, init=False)

    def by_option(self, partition: TopicPartition) -> StartLookup:
        """Return how to look up where `startingOffsets` or a timestamp says."""
        timestamp_ms = self.starting.timestamp_ms(partition, known_count=None)
        start = self.starting.of(partition, known_count=None)
        if timestamp_ms is not None and self.starting.else_latest:
            return StartLookup(LATEST_TIMESTAMP, then_timestamp_ms=timestamp_ms)
        if timestamp_ms is not None:
            return StartLookup(timestamp_ms)
        return StartLookup(LATEST_TIMESTAMP, start) if start >= 0 else StartLookup(start)

    def to_list(self) -> ListOffsetsRequest | None:
        """Return the ListOffsets request for starting positions, None if none is due."""
        listing = self.ledger.in_phase(Phase.LISTING)
        if not listing:
            return None
        questions = {key: self._question(self.ledger.owned[key].lookup) for key in listing}
        # Different questions take turns, so that one without an answer does not block the others.
        others = (question for question in questions.values() if question != self._listed_last)
        chosen = next(others, questions[listing[0]])
        return ListOffsetsRequest(
            partitions=frozenset(key for key in listing if questions[key] == chosen),
            timestamp_ms=chosen[0],
            read_committed=chosen[1],
        )

    def handle_list(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now: float
    ) -> Resolved:
        """Process starting positions; they must be committed."""
        resolved = Resolved()
        self._listed_last = (request.timestamp_ms, request.read_committed)
        for key in request.partitions:
            owned = self.ledger.owned.get(key)
            if owned is None or owned.phase is not Phase.LISTING:
                continue
            lookup = owned.lookup
            if self._question(lookup) != self._listed_last:
                continue
            listed = response.answers.get(key, UNANSWERED)
            if isinstance(listed, PartitionError):
                code = resolved.failed[key] = listed.error_code
                resolved.react(rule_for(code).lookup, code)
                continue
            if lookup.then_timestamp_ms is not None:
                # The end first: records that arrive between both answers are not skipped.
                owned.lookup = StartLookup(lookup.then_timestamp_ms, else_at=listed)
                continue
            if listed[0] == NO_OFFSET:
                start = self._without_record(key, lookup, resolved)
            else:
                start = self._start_within(key, lookup, listed, resolved, now)
            if start is not None:
                mark = lookup.mark or NO_MARK
                self.ledger.start_at(key, *start, Phase.COMMITTING_START, mark)
                resolved.to_commit.append(key)
        return resolved

    def _question(self, lookup: StartLookup) -> tuple[int, bool]:
        """Return the timestamp, and whether the log ends at the last stable offset.

        A wanted offset may lie above that: it is compared with the log end.
        """
        stable = self.read_committed and lookup.wanted_offset is None
        return lookup.timestamp_ms, stable

    def _start_within(
        self,
        key: TopicIdPartition,
        lookup: StartLookup,
        listed: tuple[int, int],
        resolved: Resolved,
        now: float,
    ) -> tuple[int, int] | None:
        """Return the starting position and its leader epoch; None if the query must fail.

        If `startingOffsets` is beyond the log end, that is a loss, and the log end is returned. If
        the query has read up to an offset beyond the log end, that offset is returned without a
        leader epoch: `PositionValidator` detects whether the log was truncated.
        """
        wanted, (end, leader_epoch) = lookup.wanted_offset, listed
        if wanted is None:
            return listed
        if wanted <= end:
            return wanted, leader_epoch
        if lookup.mark is not None:
            return wanted, NO_LEADER_EPOCH
        message = (
            f"startingOffsets of {self._name(key)} is {wanted}, but its log ends at {end}: name an"
            f" offset that exists, or set failOnDataLoss=false to start at {end}"
        )
        return None if self.losses.lose(message, resolved, now) else listed

    def _without_record(
        self, key: TopicIdPartition, lookup: StartLookup, resolved: Resolved
    ) -> tuple[int, int] | None:
        """Return where a partition starts whose records are all older than its timestamp.

        None, if the query must fail, as Spark's does.
        """
        if lookup.else_at is None and self.starting.timestamps is not None:
            named = f"{self.starting.timestamps.option} of {self._name(key)} is"
            resolved.refusal = OptionsError(no_record(named, lookup.timestamp_ms))
        return lookup.else_at

    def _name(self, key: TopicIdPartition) -> str:
        return f"{self.topics.name(key.topic_id)}-{key.partition}"
