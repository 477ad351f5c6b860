"""ConsumerGroupDescribe: the target assignment, and unread offsets of pending partitions.

Kafka's heartbeat names only the current assignment, so the client describes the group after each
change; pending partitions are the target without the owned ones. Their committed offsets and log
ends are fetched only to be shown: once a partition is assigned, both are fetched again. The ends
are listed together with those of each plan, the committed offsets after a change and with each
batch, last on their channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.ledger.events import DescriptionRefused, RangesWithheld, WithheldRange
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.member_states import ACTIVE, MemberState
from spark_groups.group.member.messages import (
    NO_OFFSET,
    UNANSWERED,
    DescribeGroupRequest,
    DescribeGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
    RequestFailed,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

DESCRIBE_AGAIN_S: Final = 5.0
DESCRIBE_SPACING_S: Final = 0.25
EMPTY_TARGET_AGAIN_S: Final = 0.5
EMPTY_TARGET_DOUBT_S: Final = 3.0
"""How long a target assignment must stay empty before it counts as final."""
REFUSED_AGAIN_S: Final = 30.0
"""When to retry a refused description: people grant rights, so this is rarely worth a try."""
MAX_RESOLVED: Final = 1_000
"""For how many pending partitions offsets are fetched; the others are only counted."""
RESOLVE_AGAIN_S: Final = 5.0


class TargetAssignment:
    """Decides when to describe the group, and what the description means for this member."""

    def __init__(self) -> None:
        self.pending = NO_PARTITIONS
        """Partitions of the target assignment that their owners had not released at the last
        description."""
        self.unreported = NO_PARTITIONS
        """Partitions that were assigned at the last description, but that no heartbeat response
        named: a response was lost, and only a full heartbeat repeats the assignment."""
        self.holders: dict[TopicIdPartition, str] = {}
        """The owners of pending partitions, if known."""
        self.planned_topics: frozenset[str] = frozenset()
        """Topics in any member's target assignment."""
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.group_state = ""
        self.refusal = int(ErrorCode.NONE)
        """The error code that refuses descriptions, else 0."""
        self.due_at: float | None = None
        self._asked_at: float | None = None
        self._settled_epoch: int | None = None
        self._empty_since: float | None = None

    def changed(self, now: float) -> None:
        """Note that the member epoch or the assignment changed: describe soon."""
        self._settled_epoch = None
        earliest = now if self._asked_at is None else self._asked_at + DESCRIBE_SPACING_S
        self._ask_at(max(now, earliest))

    @property
    def is_refused(self) -> bool:
        """True while descriptions are refused."""
        return self.refusal != ErrorCode.NONE

    def asked(self, now: float) -> None:
        """Note that the request is in flight."""
        self._asked_at = now
        self.due_at = None

    def unanswered(self, now: float) -> None:
        """Note that the request failed: describe again later."""
        self._ask_at(now + DESCRIBE_AGAIN_S)

    def handle_response(
        self,
        response: DescribeGroupResponse,
        *,
        member_id: str,
        member_epoch: int,
        owned: Assignment,
        now: float,
    ) -> bool | None:
        """Process a description.

        Returns:
            True while an assignment is still to come: the target assignment or the group's epochs
                are ahead of this member; None if the response says nothing about the member.
        """
        member = next((each for each in response.members if each.member_id == member_id), None)
        if rule_for(response.error_code).lookup is Reaction.FAIL:
            self.refusal = response.error_code
            self._ask_at(now + REFUSED_AGAIN_S)
            return None
        if response.error_code == ErrorCode.NONE:
            self.refusal = int(ErrorCode.NONE)
        if response.error_code != ErrorCode.NONE or member is None:
            self.unanswered(now)
            return None
        self.group_epoch = response.group_epoch
        self.assignment_epoch = response.assignment_epoch
        self.group_state = response.group_state
        self.pending = member.target_assignment - owned
        self.unreported = member.assignment - owned
        others = [each for each in response.members if each.member_id != member_id]
        self.holders = {
            key: f"{each.member_id} (client {each.client_id}, host {each.client_host.lstrip('/')})"
            for each in others
            for key in each.assignment
            if key in self.pending
        }
        topic_ids = {key.topic_id for each in response.members for key in each.target_assignment}
        self.planned_topics = frozenset(
            response.topic_names.get(topic_id, "") for topic_id in topic_ids
        )
        # With another member epoch the description is from before the last heartbeat response: it
        # says nothing about the current assignment.
        is_current = member.member_epoch == member_epoch
        epochs_ahead = max(self.group_epoch, self.assignment_epoch) > member_epoch
        more = bool(self.pending) or epochs_ahead or not is_current
        is_doubtful = not more and self._doubts_empty(member.target_assignment, now)
        self._settled_epoch = None if more or is_doubtful else member_epoch
        if more or is_doubtful:
            self._ask_at(now + (DESCRIBE_AGAIN_S if more else EMPTY_TARGET_AGAIN_S))
        return more or is_doubtful

    def settled(self, member_epoch: int) -> bool:
        """Return whether the member had its whole target assignment in the last description."""
        return self._settled_epoch == member_epoch

    def _doubts_empty(self, target: Assignment, now: float) -> bool:
        """Return whether an empty target assignment may be temporary.

        A coordinator admits a member before it evaluates the member's pattern, and before it learns
        of a new topic.
        """
        if target:
            self._empty_since = None
            return False
        if self._empty_since is None:
            self._empty_since = now
        # A response may arrive late: it is as old as its request.
        asked_at = now if self._asked_at is None else self._asked_at
        return asked_at - self._empty_since < EMPTY_TARGET_DOUBT_S

    def _ask_at(self, due_at: float) -> None:
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)


class PendingOffsets:
    """Committed offsets and log ends of pending partitions, as last received.

    The ends are listed together with those of each plan, which also opens the connections to the
    leaders. A request of its own is sent only after a change.
    """

    def __init__(self) -> None:
        self._keys: tuple[TopicIdPartition, ...] = ()
        self._unresolved = 0
        self._names: Mapping[TopicId, str] = {}
        self._committed: dict[TopicIdPartition, int] = {}
        self._ends: dict[TopicIdPartition, int] = {}
        self._unlisted: frozenset[TopicIdPartition] = frozenset()
        """Partitions whose ends could not be listed: not tried again before the pending partitions
        change, because each plan would wait for their broker."""
        self._must_fetch = False
        self._must_list = False
        self._is_fetching = False
        self._has_failed = False
        """Whether a fetch failed since the last description."""
        self._asked_at = float("-inf")
        self._reported: tuple[TopicIdPartition, ...] = ()

    def refresh(self, pending: Assignment, names: Mapping[TopicId, str], now: float) -> None:
        """Note the pending partitions of a description, with the names of their topics."""
        keys = tuple(pending)
        changed = keys[:MAX_RESOLVED] != self._keys
        self._keys, self._unresolved = keys[:MAX_RESOLVED], len(keys[MAX_RESOLVED:])
        self._names = names
        wanted = frozenset(self._keys)
        self._committed = {key: at for key, at in self._committed.items() if key in wanted}
        self._ends = {key: at for key, at in self._ends.items() if key in wanted}
        if not self._keys:
            self._reported = ()
        self._must_fetch = bool(self._keys) and (self._must_fetch or changed or self._has_failed)
        self._must_list = bool(self._keys) and (self._must_list or changed)
        self._has_failed = False
        if changed:
            self._asked_at, self._unlisted = now, frozenset()

    def batch_planned(self) -> None:
        """Note a batch: the offsets are looked up again with each."""
        self._must_fetch = bool(self._keys)

    def look_again(self, now: float) -> None:
        """Look the offsets up although there is no batch, at most every `RESOLVE_AGAIN_S`."""
        if self._keys and now - self._asked_at >= RESOLVE_AGAIN_S:
            self._asked_at = now
            self._must_fetch = self._must_list = True

    def to_fetch(
        self, *, group_id: str, member_id: str, member_epoch: int
    ) -> OffsetFetchRequest | None:
        """Return the request for their committed offsets, None if none is due."""
        if not self._must_fetch:
            return None
        self._must_fetch, self._is_fetching = False, True
        return OffsetFetchRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            partitions=frozenset(self._keys),
        )

    def to_list(self, pending: Assignment, *, is_alone: bool) -> frozenset[TopicIdPartition]:
        """Return the partitions whose log ends to list now.

        Args:
            pending: The partitions that are still pending.
            is_alone: True if no other ends are listed: then only after a change.
        """
        if is_alone and not self._must_list:
            return frozenset()
        return frozenset(self._keys).intersection(pending.partitions) - self._unlisted

    def handle_fetch(self, response: OffsetFetchResponse, now: float) -> list[RangesWithheld]:
        """Process committed offsets; return the events to emit."""
        self._is_fetching = False
        for key in self._keys:
            answer = response.answers.get(key, UNANSWERED)
            if isinstance(answer, PartitionError):
                self._has_failed = True
            else:
                self._committed[key] = answer.committed_offset
        return self._changed_ranges(now)

    def handle_ends(
        self,
        asked: frozenset[TopicIdPartition],
        ends: Mapping[TopicIdPartition, int],
        now: float,
    ) -> list[RangesWithheld]:
        """Process log ends; return the events to emit."""
        if not asked:
            return []
        self._must_list = self._must_list and not asked.issuperset(self._keys)
        self._unlisted |= asked - ends.keys()
        self._ends.update({key: ends[key] for key in self._keys if key in asked and key in ends})
        return self._changed_ranges(now)

    def unanswered(self) -> None:
        """Note that a fetch failed: the next description or batch repeats it."""
        self._is_fetching, self._has_failed = False, True

    def withheld(self, pending: Assignment) -> tuple[WithheldRange, ...]:
        """Return the unread offsets of the partitions that are still pending."""
        return tuple(
            WithheldRange(
                self._names.get(key.topic_id, str(key.topic_id)),
                key.partition,
                None if self._committed.get(key, NO_OFFSET) == NO_OFFSET else self._committed[key],
                self._ends.get(key),
            )
            for key in self._keys
            if key in pending
        )

    def _changed_ranges(self, now: float) -> list[RangesWithheld]:
        """Return the event for changed pending partitions, once all their offsets are known."""
        is_waiting = self._must_fetch or self._is_fetching or self._must_list
        if is_waiting or self._reported == self._keys:
            return []
        self._reported = self._keys
        withheld = self.withheld(Assignment(frozenset(self._keys)))
        return [RangesWithheld(now, withheld, self._unresolved)]


@dataclass(slots=True)
class Descriptions:
    """Describes the group when that is due."""

    first_wait_s: ClassVar = 5.0

    positions: Positions
    target: TargetAssignment
    pending: PendingOffsets
    coordinator: Coordinator
    described: Callable[[], None]
    """Called after each description."""

    def next_request(self, now: float) -> DescribeGroupRequest | None:
        """Describe the group if that is due."""
        due_at = self.target.due_at
        if due_at is None or due_at > now or self.positions.member.state not in ACTIVE:
            return None
        self.target.asked(now)
        return DescribeGroupRequest(group_id=self.positions.member.config.group_id)

    def answered(
        self, _request: DescribeGroupRequest, response: DescribeGroupResponse, now: float
    ) -> None:
        """Process the target assignment; while it is ahead of the member, heartbeats are faster."""
        member, target = self.positions.member, self.target
        refusal = target.refusal
        more = target.handle_response(
            response,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            owned=member.owned,
            now=now,
        )
        if target.refusal not in (refusal, ErrorCode.NONE):
            self.positions.emit(DescriptionRefused(now, ErrorCode.name_of(target.refusal)))
        if more is not None:
            pending = self.positions.still_pending(target.pending)
            names = {
                each.topic_id: self.positions.topics.name(each.topic_id)
                or response.topic_names.get(each.topic_id, str(each.topic_id))
                for each in pending
            }
            self.pending.refresh(pending, names, now)
        # Where descriptions stay refused, only the answer to a full heartbeat shows an assignment
        # whose first answer was lost.
        if (more and target.unreported) or (more is None and refusal and target.is_refused):
            member.report_in_full(now)
        if more is not None and member.state is not MemberState.JOINING:
            member.pace.expect_assignment(now, more=more)
        self.described()
        if response.error_code == ErrorCode.NOT_COORDINATOR:
            self.coordinator.lost()

    def failed(self, _request: DescribeGroupRequest, _failure: RequestFailed, now: float) -> None:
        """Retry later."""
        self.positions.member.pace.at_once(now)
        self.target.unanswered(now)


@dataclass(slots=True)
class PendingFetch:
    """Fetches the committed offsets of pending partitions."""

    first_wait_s: ClassVar = 10.0

    positions: Positions
    pending: PendingOffsets

    def next_request(self, _now: float) -> OffsetFetchRequest | None:
        """Fetch after each change and with each batch."""
        member = self.positions.member
        if not member.may_commit:
            return None
        return self.pending.to_fetch(
            group_id=member.config.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
        )

    def answered(
        self, _request: OffsetFetchRequest, response: OffsetFetchResponse, now: float
    ) -> None:
        """Report unread offsets once both requests are answered."""
        for event in self.pending.handle_fetch(response, now):
            self.positions.emit(event)

    def failed(self, _request: OffsetFetchRequest, _failure: RequestFailed, now: float) -> None:
        """Wait for the next description or batch."""
        self.positions.member.pace.at_once(now)
        self.pending.unanswered()
