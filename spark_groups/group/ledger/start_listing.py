"""Looks up the starting offsets of partitions: the beginning or end of a log, or a timestamp."""

from __future__ import annotations

from spark_groups.errors import OptionsError, rule_for
from spark_groups.group.ledger.data_loss import LossPolicy
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, OwnedPartition, Phase
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.starting import StartingOffsets, no_record
from spark_groups.group.member.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    UNANSWERED,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionError,
)
from spark_groups.types import TopicIdPartition, TopicPartition


class StartListing:
    """Moves owned partitions from LISTING to COMMITTING_START."""

    def __init__(
        self,
        ledger: Ledger,
        topics: TopicDirectory,
        starting: StartingOffsets,
        losses: LossPolicy,
        *,
        read_committed: bool,
    ) -> None:
        self._ledger = ledger
        self._topics = topics
        self._starting = starting
        self._losses = losses
        self._read_committed = read_committed
        self._listed_last: tuple[int, bool] | None = None

    def at_beginning(self, owned: OwnedPartition) -> None:
        """Let a partition start at its beginning."""
        self._list(owned, EARLIEST_TIMESTAMP)

    def at_option(self, owned: OwnedPartition, partition: TopicPartition) -> None:
        """Let a partition start where `startingOffsets` or a timestamp says."""
        timestamp_ms = self._starting.timestamp_ms(partition, known_count=None)
        start = self._starting.of(partition, known_count=None)
        if timestamp_ms is not None and self._starting.else_latest:
            self._list(owned, LATEST_TIMESTAMP, then_timestamp=timestamp_ms)
        elif timestamp_ms is not None:
            self._list(owned, timestamp_ms)
        elif start >= 0:
            self._list(owned, LATEST_TIMESTAMP, start)
        else:
            self._list(owned, start)

    def _list(
        self,
        owned: OwnedPartition,
        timestamp_ms: int,
        wanted_offset: int | None = None,
        *,
        then_timestamp: int | None = None,
        else_at: tuple[int, int] | None = None,
    ) -> None:
        owned.phase = Phase.LISTING
        owned.starting_timestamp, owned.wanted_offset = timestamp_ms, wanted_offset
        owned.then_timestamp, owned.else_at = then_timestamp, else_at

    def to_list(self) -> ListOffsetsRequest | None:
        """Return the ListOffsets request for starting positions, None if none is due."""
        listing = self._ledger.in_phase(Phase.LISTING)
        if not listing:
            return None
        questions = {key: self._question(self._ledger.owned[key]) for key in listing}
        # Different questions take turns, so that one without an answer does not block the others.
        others = (each for each in questions.values() if each != self._listed_last)
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
            owned = self._ledger.owned.get(key)
            if owned is None or owned.phase is not Phase.LISTING:
                continue
            if self._question(owned) != self._listed_last:
                continue
            listed = response.answers.get(key, UNANSWERED)
            if isinstance(listed, PartitionError):
                code = resolved.failed[key] = listed.error_code
                resolved.react(rule_for(code).lookup, code)
                continue
            if owned.then_timestamp is not None:
                # The end first: records that arrive between both answers are not skipped.
                self._list(owned, owned.then_timestamp, else_at=listed)
                continue
            if listed[0] == NO_OFFSET:
                start = self._without_record(key, owned, resolved)
            else:
                start = self._start_within(key, owned, listed, resolved, now)
            if start is not None:
                self._ledger.start_at(key, *start, Phase.COMMITTING_START)
                resolved.to_commit.append(key)
        return resolved

    def _question(self, owned: OwnedPartition) -> tuple[int, bool]:
        """Return the timestamp, and whether the log ends at the last stable offset.

        An offset named in `startingOffsets` may lie above that: it is compared with the log end.
        """
        stable = self._read_committed and owned.wanted_offset is None
        return owned.starting_timestamp, stable

    def _start_within(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        listed: tuple[int, int],
        resolved: Resolved,
        now: float,
    ) -> tuple[int, int] | None:
        """Return the starting position and its leader epoch; None if the query must fail.

        If `startingOffsets` is beyond the log end, that is a loss, and the log end is returned.
        """
        wanted, (end, leader_epoch) = owned.wanted_offset, listed
        if wanted is None:
            return listed
        if wanted <= end:
            return wanted, leader_epoch
        message = (
            f"startingOffsets of {self._name(key)} is {wanted}, but its log ends at {end}: name an"
            f" offset that exists, or set failOnDataLoss=false to start at {end}"
        )
        return None if self._losses.must_fail(message, resolved, now) else listed

    def _without_record(
        self, key: TopicIdPartition, owned: OwnedPartition, resolved: Resolved
    ) -> tuple[int, int] | None:
        """Return where a partition starts whose records are all older than its timestamp.

        None, if the query must fail, as Spark's does.
        """
        if owned.else_at is None and self._starting.timestamps is not None:
            named = f"{self._starting.timestamps.option} of {self._name(key)} is"
            resolved.refusal = OptionsError(no_record(named, owned.starting_timestamp))
        return owned.else_at

    def _name(self, key: TopicIdPartition) -> str:
        return f"{self._topics.name(key.topic_id)}-{key.partition}"
