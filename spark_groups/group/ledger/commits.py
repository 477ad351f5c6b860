"""The offset commits of one member: pending, in flight, and their outcome.

One request is in flight at a time, of at most 1,000 partitions (a commit of about 1 MB always
fails, measured), all of one member epoch. Partitions whose tenure has ended are removed first,
because a lost partition makes the coordinator refuse the whole request (KIP-1251). A commit that
got no answer is sent again, then verified with OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from spark_groups.errors import ErrorCode, Reaction, is_graver, rule_for
from spark_groups.group.ledger.commit_metadata import commit_metadata, mark_of
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from spark_groups.types import TopicIdPartition
from spark_groups.values import dataclass

MAX_PARTITIONS_PER_COMMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """An offset to commit.

    Args:
        tenure: The tenure in which it was read; the commit is dropped when that ends.
        member_epoch: The member epoch that fences it: the plan's, or a newer one after a refusal.
        committed_offset: The next offset to read.
        known_count: Partitions of the topic when the group began to read it.
        leader_epoch: A leader epoch whose log reached the offset, or NO_LEADER_EPOCH.
        uncertain: True once a request with it got no answer.
        refused_at: When it was last refused as stale: it waits for a heartbeat sent after that.
        is_truncated: Whether the log was truncated to the offset, below an offset that was read.
        mark: Which commit it is, in its metadata; the same when it is sent again.
    """

    key: TopicIdPartition
    tenure: int
    member_epoch: int
    committed_offset: int
    known_count: int
    leader_epoch: int = NO_LEADER_EPOCH
    uncertain: bool = False
    refused_at: float | None = None
    is_truncated: bool = False
    mark: str = NO_MARK


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of an OffsetCommit response.

    Args:
        accepted: Offsets that are committed now.
        gone: Offsets of topics that do not exist: dropped.
        refused: How many partitions were refused as stale and wait for a newer member epoch.
        refusal: The error code of these.
        reaction: The gravest other reaction, or ACCEPT.
        error: The error code of that.
    """

    accepted: tuple[PendingCommit, ...] = ()
    gone: tuple[PendingCommit, ...] = ()
    refused: int = 0
    refusal: ErrorCode | int = ErrorCode.NONE
    reaction: Reaction = Reaction.ACCEPT
    error: ErrorCode | int = ErrorCode.NONE


class CommitQueue:
    """Pending offset commits by partition."""

    def __init__(self) -> None:
        self.refused = 0
        """How many partitions were refused as stale so far."""
        self._queued: dict[TopicIdPartition, PendingCommit] = {}
        self._sent: dict[TopicIdPartition, PendingCommit] = {}
        self._unverified: dict[TopicIdPartition, PendingCommit] = {}
        self._backoff = Backoff()

    def add(self, commits: Iterable[PendingCommit]) -> None:
        """Queue commits; a later offset of a partition replaces an earlier one."""
        is_first = not self.is_pending
        for each in commits:
            if not is_first and not each.uncertain and self._is_uncertain(each.key):
                each = replace(each, uncertain=True)  # noqa: PLW2901
            if self._unverified:
                self._unverified.pop(each.key, None)
            self._queued[each.key] = each

    def pending(self) -> frozenset[TopicIdPartition]:
        """Return the partitions with a commit that is not known to be accepted."""
        return frozenset((*self._queued, *self._sent, *self._unverified))

    @property
    def is_pending(self) -> bool:
        """True while any partition has such a commit."""
        return bool(self._queued or self._sent or self._unverified)

    def unverified(self) -> frozenset[TopicIdPartition]:
        """Return the partitions whose committed offset must be fetched."""
        return frozenset(self._unverified)

    def drop(self, keys: Iterable[TopicIdPartition]) -> tuple[PendingCommit, ...]:
        """Drop the commits of partitions, and return them."""
        dropped = []
        for key in keys:
            for commits in (self._queued, self._sent, self._unverified):
                each = commits.pop(key, None)
                if each is not None:
                    dropped.append(each)
        return tuple(dropped)

    def poll(
        self,
        now: float,
        *,
        member_epoch: int,
        proven_at: float | None,
        tenure: Callable[[TopicIdPartition], int | None],
    ) -> dict[TopicIdPartition, PendingCommit]:
        """Return the commits of the next request, which is then in flight; empty: none is due.

        Args:
            member_epoch: The current member epoch.
            proven_at: When the last accepted heartbeat was sent.
            tenure: Returns the tenure of a partition, None if it is not owned.
        """
        if self._sent or not self._queued or now < self._backoff.not_before:
            return {}
        chosen: dict[TopicIdPartition, PendingCommit] = {}
        chosen_epoch: int | None = None
        over: list[TopicIdPartition] = []
        for due in self._queued.values():
            if len(chosen) == MAX_PARTITIONS_PER_COMMIT:
                break
            if tenure(due.key) != due.tenure:
                over.append(due.key)
                continue
            if due.refused_at is not None:
                if proven_at is None or proven_at < due.refused_at:
                    continue
                due = replace(due, refused_at=None, member_epoch=member_epoch)  # noqa: PLW2901
            if chosen_epoch is None:
                chosen_epoch = due.member_epoch
            if due.member_epoch == chosen_epoch:
                chosen[due.key] = due
        for key in (*over, *chosen):
            del self._queued[key]
        self._sent = dict(chosen)
        return chosen

    def handle_response(self, response: OffsetCommitResponse, now: float) -> CommitOutcome:
        """Process the answer to the request in flight."""
        sent, self._sent = self._sent, {}
        accepted, gone, refused, refusal = [], [], 0, int(ErrorCode.NONE)
        gravest, error = Reaction.ACCEPT, int(ErrorCode.NONE)
        for each in sent.values():
            code = response.errors.get(each.key, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            reaction = rule_for(code).offsets
            if reaction is Reaction.ACCEPT:
                if each.uncertain and each.key not in self._queued:
                    self._unverified[each.key] = each
                else:
                    accepted.append(each)
            elif reaction is Reaction.DROP_TOPIC:
                gone.append(each)
            else:
                if reaction is Reaction.REFRESH_EPOCH:
                    refused, refusal = refused + 1, code
                    each = replace(each, refused_at=now)  # noqa: PLW2901
                elif is_graver(reaction, gravest):
                    gravest, error = reaction, code
                self._again(each)
        self.refused += refused
        self._backoff.ended(now, accepted=gravest is Reaction.ACCEPT)
        return CommitOutcome(tuple(accepted), tuple(gone), refused, refusal, gravest, error)

    def handle_failure(self, now: float, *, may_have_arrived: bool) -> None:
        """Note that the request in flight got no answer: it is sent again, then verified."""
        sent, self._sent = self._sent, {}
        for each in sent.values():
            self._again(replace(each, uncertain=each.uncertain or may_have_arrived))
        self._backoff.failed(now)

    def verified(self, key: TopicIdPartition, committed: OffsetAndMetadata) -> PendingCommit | None:
        """Compare an uncertain commit with the fetched offset and its metadata.

        Returns:
            The commit if it was accepted; else None, and it is sent again.
        """
        each = self._unverified.pop(key, None)
        if each is None:
            return None
        if (committed.committed_offset, mark_of(committed)) == (each.committed_offset, each.mark):
            return each
        self._again(each)
        return None

    def next_wakeup(self) -> float | None:
        """Return when the next request may be sent, None if nothing is queued."""
        return self._backoff.not_before if self._queued and not self._sent else None

    def _is_uncertain(self, key: TopicIdPartition) -> bool:
        if key in self._unverified:
            return True
        earlier = (self._queued.get(key), self._sent.get(key))
        return any(each is not None and each.uncertain for each in earlier)

    def _again(self, each: PendingCommit) -> None:
        newer = self._queued.get(each.key)
        if newer is None:
            self._queued[each.key] = each
        elif each.uncertain and not newer.uncertain:
            self._queued[each.key] = replace(newer, uncertain=True)


def commit_request(
    commits: dict[TopicIdPartition, PendingCommit],
    *,
    group_id: str,
    member_id: str,
    instance_id: str | None,
) -> OffsetCommitRequest:
    """Return the request for commits of one member epoch."""
    return OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=next(iter(commits.values())).member_epoch,
        instance_id=instance_id,
        offsets={
            key: OffsetAndMetadata(
                commit.committed_offset,
                commit_metadata(
                    commit.known_count,
                    mark=commit.mark,
                    offset=commit.committed_offset,
                    is_truncated=commit.is_truncated,
                ),
                commit.leader_epoch,
            )
            for key, commit in commits.items()
        },
    )
