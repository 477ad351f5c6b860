"""Detects truncated logs by leader epochs.

A position has a leader epoch whose log reached it: the one under which its end was listed. When the
leader changes, the new leader reports how far its log agrees with that epoch (KIP-320); if that is
below the position, records that were read are gone and others may replace them. If no epoch is
known for the position, a listed end below it proves nothing at first: a new leader's answer may be
old, and under read_committed the listed end is the last stable offset. So it is doubted for
some seconds, and until the leader has reported the end of the whole log. Under one leader epoch a
log does not shrink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_groups.errors import Reaction, rule_for
from spark_groups.group.ledger.data_loss import LossPolicy
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, OwnedPartition, Phase
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    UNANSWERED,
    EpochEnd,
    EpochLookup,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    PartitionError,
    found_and_failed,
)
from spark_groups.types import LATEST_TIMESTAMP, TopicIdPartition

DOUBT_S: Final = 5.0
"""For how long an end below the position, or an answer of an old leader, is not believed."""


class PositionValidator:
    """Decides which positions may be planned from, and validates those whose leader changed."""

    def __init__(self, ledger: Ledger, topics: TopicDirectory, fail_on_data_loss: bool) -> None:
        self._ledger = ledger
        self._topics = topics
        self._losses = LossPolicy(fail_on_data_loss)
        self._doubted_since: dict[TopicIdPartition, float] = {}
        self._too_short: dict[TopicIdPartition, tuple[float, EpochEnd]] = {}
        """Log ends below a doubted position, and when they were received."""

    def compare(
        self, ends: Mapping[TopicIdPartition, int], leader_epochs: Mapping[TopicIdPartition, int]
    ) -> bool:
        """Note the leader epochs under which ends were listed.

        Returns:
            True if a new leader must confirm positions; those partitions are not planned until
                then.
        """
        found = False
        for key, listed in leader_epochs.items():
            owned = self._ledger.owned.get(key)
            if owned is None or owned.phase is not Phase.READY:
                continue
            if listed == owned.leader_epoch:
                owned.listed_end = ends[key]
            elif NO_LEADER_EPOCH < owned.leader_epoch < listed:
                owned.phase, owned.current_leader_epoch = Phase.VALIDATING, listed
                owned.listed_end = ends[key]
                found = True
        return found

    def usable(
        self,
        positions: Mapping[TopicIdPartition, int],
        ends: Mapping[TopicIdPartition, int],
        leader_epochs: Mapping[TopicIdPartition, int],
        now: float,
    ) -> tuple[dict[TopicIdPartition, int], Resolved]:
        """Return the positions that batches may begin at, and what to do about the others.

        Args:
            positions: Positions of ready partitions.
            ends: Log ends, after `compare`.
            leader_epochs: The leader epoch under which each end was listed.
        """
        usable: dict[TopicIdPartition, int] = {}
        resolved = Resolved()
        for key, position in positions.items():
            end = ends.get(key)
            if end is None:
                continue
            owned = self._ledger.owned[key]
            listed = leader_epochs.get(key, NO_LEADER_EPOCH)
            is_same_or_unknown = listed in (owned.leader_epoch, NO_LEADER_EPOCH)
            if is_same_or_unknown and end >= position:
                usable[key] = position
                self.forget(key)
                if owned.reached_offset != position and listed != NO_LEADER_EPOCH:
                    self._reached(key, listed, resolved)
            elif self._examine(key, owned, EpochEnd(end, listed), resolved, now):
                usable[key] = owned.position
        return usable, resolved

    def _examine(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        listed: EpochEnd,
        resolved: Resolved,
        now: float,
    ) -> bool:
        """Return whether a partition with an unexpected end or leader epoch may be planned."""
        known = owned.leader_epoch
        # The partition became ready after `compare`: the next one asks the new leader.
        is_newer = NO_LEADER_EPOCH < known < listed.leader_epoch
        is_reached = known == listed.leader_epoch and owned.reached_offset == owned.position
        if is_newer or (is_reached and known >= 0):
            return False
        if known == NO_LEADER_EPOCH and listed.end_offset >= owned.position:
            owned.stand_at(owned.position, listed.leader_epoch, owned.mark)
            self.forget(key)
            return True
        since = self._doubted_since.setdefault(key, now)
        if now - since < DOUBT_S:
            return False
        if NO_LEADER_EPOCH < listed.leader_epoch < known:
            # An old leader does not answer for this long: the position's own epoch is wrong.
            owned.leader_epoch = NO_LEADER_EPOCH
            self.forget(key)
            return False
        if self._is_unreached(key):
            received_at, listed = self._too_short.get(key, (since, listed))
            if received_at < since + DOUBT_S:
                return False
        # If the position was inherited, nothing above the committed offset is certain.
        kept = min(listed.end_offset, max(owned.committed_offset, 0))
        message = (
            f"{self._name(key)} ends at {listed.end_offset}, but this group has read it up to"
            f" {owned.position}: the log was truncated. Set failOnDataLoss=false to continue"
            f" from {kept}"
        )
        if not self._losses.lose(message, resolved, now):
            self._move_back(key, EpochEnd(kept, listed.leader_epoch), resolved)
        return False

    def doubted(self) -> frozenset[TopicIdPartition]:
        """Return the partitions whose listed ends are doubted."""
        return frozenset(self._doubted_since)

    def to_list(self) -> ListOffsetsRequest | None:
        """Return the request for log ends, None if none is due.

        Two kinds of partitions wait for it: those with an undecided finished run, and those whose
        position may be beyond the last stable offset.
        """
        waiting = self._waiting()
        if not waiting:
            return None
        return ListOffsetsRequest(partitions=waiting, timestamp_ms=LATEST_TIMESTAMP)

    def _waiting(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that wait for a log end."""
        undecided = self._ledger.undecided()
        if not undecided and not self._doubted_since:
            return frozenset()
        owned = self._ledger.owned
        return frozenset(
            key
            for key in undecided
            if owned[key].listed_end == NO_OFFSET and owned[key].leader_epoch != NO_LEADER_EPOCH
        ) | frozenset(key for key in self._doubted_since if self._is_unreached(key))

    def handle_list(self, response: ListOffsetsResponse, now: float) -> Resolved:
        """Process the log ends."""
        found, failed = found_and_failed(response.answers)
        # A partition that was planned since must not go back below a batch that runs.
        waiting = self._waiting()
        found = {key: each for key, each in found.items() if key in waiting}
        ends = {key: each.offset for key, each in found.items()}
        self.compare(ends, {key: each.leader_epoch for key, each in found.items()})
        resolved = Resolved()
        for key, (end, leader_epoch) in found.items():
            owned = self._ledger.owned.get(key)
            if owned is None:
                continue
            if end < owned.position and self._is_unreached(key):
                self._too_short[key] = (now, EpochEnd(end, leader_epoch))
            if leader_epoch < 0:
                owned.leader_epoch = NO_LEADER_EPOCH
                continue
            is_as_long = end >= owned.position and leader_epoch >= owned.leader_epoch
            if is_as_long and self._is_unreached(key):
                self._reached(key, leader_epoch, resolved)
                self.forget(key)
        # If an old leader answered, that is no error, but the request is repeated after a pause.
        if self.to_list() is not None:
            resolved.reaction = Reaction.RETRY
        for code in failed.values():
            resolved.react(rule_for(code).lookup, code)
        return resolved

    def to_ask(self) -> OffsetForLeaderEpochRequest | None:
        """Return the request for the ends of leader epochs, None if none is due."""
        validating = self._ledger.in_phase(Phase.VALIDATING)
        if not validating:
            return None
        owned = self._ledger.owned
        return OffsetForLeaderEpochRequest(
            lookups={
                key: EpochLookup(owned[key].leader_epoch, owned[key].current_leader_epoch)
                for key in validating
            }
        )

    @property
    def is_waiting(self) -> bool:
        """True while a new leader must confirm positions."""
        return bool(self._ledger.in_phase(Phase.VALIDATING))

    def handle_ends(
        self,
        request: OffsetForLeaderEpochRequest,
        response: OffsetForLeaderEpochResponse,
        now: float,
    ) -> Resolved:
        """Process how far the new leaders' logs agree with the leader epochs of positions."""
        resolved = Resolved()
        for key, lookup in request.lookups.items():
            owned = self._ledger.owned.get(key)
            if owned is None or owned.phase is not Phase.VALIDATING:
                continue
            asked = EpochLookup(owned.leader_epoch, owned.current_leader_epoch)
            if asked != lookup:
                continue
            end = response.answers.get(key, UNANSWERED)
            if isinstance(end, PartitionError):
                resolved.failed[key] = end.error_code
                resolved.react(rule_for(end.error_code).lookup, end.error_code)
            elif end.end_offset == NO_OFFSET or end.end_offset >= owned.reached_offset:
                owned.leader_epoch, owned.phase = owned.current_leader_epoch, Phase.READY
            else:
                confirmed = EpochEnd(end.end_offset, owned.current_leader_epoch)
                message = self._diverged(key, owned, confirmed)
                if not self._losses.lose(message, resolved, now):
                    self._move_back(key, confirmed, resolved)
        return resolved

    def _is_unreached(self, key: TopicIdPartition) -> bool:
        """Return whether a position is doubted and no known leader epoch has reached it."""
        owned = self._ledger.owned.get(key)
        if owned is None or owned.phase is not Phase.READY or key not in self._doubted_since:
            return False
        return owned.leader_epoch == NO_LEADER_EPOCH or owned.reached_offset != owned.position

    def _reached(self, key: TopicIdPartition, leader_epoch: int, resolved: Resolved) -> None:
        """Note that a leader epoch's log has reached an inherited position, and commit it.

        A commit without a leader epoch would hide a truncation.
        """
        owned = self._ledger.owned[key]
        owned.stand_at(owned.position, leader_epoch, owned.mark)
        if owned.committed_offset != owned.position:
            resolved.to_commit.append(key)

    def forget(self, key: TopicIdPartition) -> None:
        """Drop the doubts about a partition."""
        self._doubted_since.pop(key, None)
        self._too_short.pop(key, None)

    def _diverged(self, key: TopicIdPartition, owned: OwnedPartition, confirmed: EpochEnd) -> str:
        return (
            f"{self._name(key)} was truncated: this group has read it up to {owned.position} under"
            f" leader epoch {owned.leader_epoch}, but the log of leader epoch"
            f" {confirmed.leader_epoch} diverges from it at {confirmed.end_offset}. Offsets"
            f" [{confirmed.end_offset}, {owned.position}) that were read are gone, and their"
            " replacements were not read (caused by an unclean leader election). Set"
            f" failOnDataLoss=false to continue from {confirmed.end_offset}"
        )

    def _move_back(self, key: TopicIdPartition, to: EpochEnd, resolved: Resolved) -> None:
        self._ledger.move_back(key, to.end_offset, to.leader_epoch)
        resolved.to_commit.append(key)
        self.forget(key)

    def _name(self, key: TopicIdPartition) -> str:
        return f"{self._topics.name(key.topic_id) or key.topic_id}-{key.partition}"
