"""Requests that arrive after their senders stopped waiting, and races that excuse a member.

A request on a broken connection may reach the coordinator seconds later. A member repeats such a
commit and fetches the committed offset before it relies on it: it detects a late commit that
arrives before the fetch, but not one that arrives after. That race is documented beside
`CommitQueue` in `spark_groups/group/ledger/commits.py`.

The other race is a late heartbeat. It has the previous epoch and the partitions owned then, so the
coordinator treats all others as revoked and reassigns them while the sender still reads them. A
late join claims no partitions and a late leave ends the membership, with the same effect. The
answer to a late join may be the only one with its sender's assignment: a query detects that in the
group's description and sends a full heartbeat; a plain consumer never learns of it. The protocol
does not distinguish such requests from timely ones.

A commit may also arrive in time, but after its member released the partition: a query releases it
when its rebalance timeout is over, a plain consumer at once. Until the member learns of its next
epoch, the coordinator accepts such a commit. Checkers excuse these races, and nothing else.

In a mixed group there are two more. A classic group is upgraded after a member was assigned fewer
partitions than it owns, and before it has revoked the others: they have no owner in the upgraded
group, so another member gets them at once. And a consumer group takes a classic member that it has
removed as a new one if that joins again under its member id, so it does not know that it lost its
partitions. In a classic group there is one: a static member that misses a generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from group_lab.sim import facts
from group_lab.sim.coordination import AcceptedOffset
from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.events import PartitionsGivenUp
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.types import TopicIdPartition

Sender = tuple[str, TopicIdPartition]
"""A member id and a partition."""


class Doubt(Enum):
    """The state of a commit without an answer."""

    UNANSWERED = "it may have been accepted, or may yet be"
    REPEATED = "it was repeated, and the repetition was accepted"
    LOOKED_UP = "the committed offset was fetched since"


class LateRequests:
    """Follows commits without an answer, and changes by late heartbeats."""

    def __init__(self) -> None:
        self.copied_member_ids: set[str] = set()
        """Members in copies of their checkpoints, until their next refusal: a query that starts
        from a copy removes them from the group."""
        self._taken_unaware: set[Sender] = set()
        """Partitions that a late heartbeat took from a member, until the member releases them."""
        self._given_unaware: set[Sender] = set()
        """Partitions that a late heartbeat gave to a plain consumer that does not know it."""
        self._given_up: set[TopicIdPartition] = set()
        """Partitions that a member is about to release: its rebalance timeout is over."""
        self._released_while_committing: set[Sender] = set()
        """Partitions whose member released them although a commit of them may be under way, until
        they are assigned to it again, or a plain consumer commits them again."""
        self._doubts: dict[Sender, Doubt] = {}
        self._assigned_at: dict[Sender, int] = {}
        """The member epoch of a partition's last assignment to a member."""
        self._late: dict[tuple[Sender, int, float], bool] = {}
        """Late commits by sender, offset and arrival; True if the sender cannot detect them."""
        self._overtaken: dict[TopicIdPartition, tuple[int, bool]] = {}
        """Offsets committed by a late commit; True if the sender cannot detect it."""
        self._replaced: dict[TopicIdPartition, tuple[int, bool]] = {}
        """The same before the last accepted offset."""

    def listeners(self) -> Mapping[type, Callable[[Any], None]]:
        """Return what to call for each kind of fact."""
        return {
            facts.ReleasedWhileCommitting: self._consumer_released,
            facts.Consumed: self._consumed,
            facts.Unanswered: self._unanswered,
            facts.Answered: self._answered,
            facts.CameLate: self._came_late,
            facts.Committed: self._committed,
            facts.ChangedByLateHeartbeat: self._heartbeat_late,
            facts.TakenUnaware: self._taken_from_classic,
            facts.Happened: self._happened,
            facts.ClassicHappened: self._happened,
        }

    def is_late(self, each: AcceptedOffset) -> bool:
        """Return whether an offset came late, or from a member that lost the partition unaware.

        A commit also comes late if it was under way when its member released the partition.
        """
        sender = (each.member_id, each.key)
        if sender in self._released_while_committing:
            return True
        if not self._late and not self._taken_unaware:
            return False
        return (
            sender,
            each.committed_offset,
            each.at,
        ) in self._late or sender in self._taken_unaware

    def is_taken_unaware(self, member_id: str, key: TopicIdPartition) -> bool:
        """Return whether a late heartbeat took a partition from a member that does not know it."""
        return (member_id, key) in self._taken_unaware

    def is_given_unaware(self, member_id: str | None, key: TopicIdPartition) -> bool:
        """Return whether a late heartbeat gave a partition to an unaware plain consumer."""
        return (member_id, key) in self._given_unaware

    def undoes_late(self, each: AcceptedOffset) -> bool:
        """Return whether an accepted offset replaced that of a late commit."""
        left = self._replaced.get(each.key)
        return left is not None and left[0] == each.before

    def is_doubted(self, member_id: str, key: TopicIdPartition) -> bool:
        """Return whether a member has yet to fetch the result of a commit without an answer."""
        return self._doubts.get((member_id, key)) in (Doubt.UNANSWERED, Doubt.REPEATED)

    def overtook(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        """Return whether a late commit committed this offset."""
        left = self._overtaken.get(key)
        return left is not None and left[0] == committed_offset

    def is_race(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        """Return whether a late commit that its sender cannot detect committed this offset."""
        return self._overtaken.get(key) == (committed_offset, True)

    def _consumer_released(self, fact: facts.ReleasedWhileCommitting) -> None:
        self._released_while_committing.update((fact.member_id, key) for key in fact.partitions)

    def _consumed(self, fact: facts.Consumed) -> None:
        if self._released_while_committing:
            self._released_while_committing -= {(fact.member_id, key) for key in fact.ranges}

    def _unanswered(self, fact: facts.Unanswered) -> None:
        request = fact.request
        if isinstance(request, m.OffsetCommitRequest):
            for key in request.offsets:
                sender = (request.member_id, key)
                # The coordinator refuses a commit of an earlier assignment: no fetch is needed.
                if request.member_epoch >= self._assigned_at.get(sender, 0):
                    self._doubts[sender] = Doubt.UNANSWERED

    def _answered(self, fact: facts.Answered) -> None:
        if self.copied_member_ids and isinstance(fact.response, m.HeartbeatResponse):
            sender_id = getattr(fact.request, "member_id", "")
            if fact.response.error_code and sender_id.startswith(f"{fact.who}."):
                self.copied_member_ids.discard(sender_id)
        if not self._doubts:
            return
        match fact.request, fact.response:
            case m.OffsetCommitRequest(member_id=member_id), m.OffsetCommitResponse(errors=errors):
                for key, code in errors.items():
                    if code == ErrorCode.NONE:
                        self._move((member_id, key), Doubt.UNANSWERED, Doubt.REPEATED)
            case m.OffsetFetchRequest(member_id=str(member_id)), m.OffsetFetchResponse() as shown:
                for key in m.found_and_failed(shown.answers)[0]:
                    self._move((member_id, key), Doubt.REPEATED, Doubt.LOOKED_UP)

    def _move(self, sender: Sender, before: Doubt, after: Doubt) -> None:
        if self._doubts.get(sender) is before:
            self._doubts[sender] = after

    def _came_late(self, fact: facts.CameLate) -> None:
        request = fact.request
        if not isinstance(request, m.OffsetCommitRequest):
            return
        for key, offset in request.offsets.items():
            sender = (request.member_id, key)
            is_race = self._doubts.get(sender) is Doubt.LOOKED_UP
            self._late[sender, offset.committed_offset, fact.at] = is_race

    def _heartbeat_late(self, fact: facts.ChangedByLateHeartbeat) -> None:
        self._taken_unaware.update((fact.member_id, key) for key in fact.taken)
        self._given_unaware.update((fact.member_id, key) for key in fact.given)

    def _taken_from_classic(self, fact: facts.TakenUnaware) -> None:
        self._taken_unaware.update((fact.member_id, key) for key in fact.taken)

    def _happened(self, fact: facts.Happened | facts.ClassicHappened) -> None:
        event = fact.event
        if self._taken_unaware and isinstance(event, PartitionsRevoked | PartitionsLost):
            self._taken_unaware -= {(event.member_id, key) for key in event.partitions}
        if isinstance(event, PartitionsGivenUp):
            self._given_up.update(event.partitions)
        if self._given_up and isinstance(event, PartitionsRevoked):
            overdue = self._given_up.intersection(event.partitions)
            self._released_while_committing.update((event.member_id, key) for key in overdue)
            self._given_up -= overdue
        if isinstance(event, PartitionsAssigned):
            self._released_while_committing -= {(event.member_id, key) for key in event.partitions}
            self._given_unaware -= {(event.member_id, key) for key in event.partitions}
            # A commit of an earlier assignment no longer matters.
            for key in event.partitions:
                self._assigned_at[event.member_id, key] = event.member_epoch
                if self.is_doubted(event.member_id, key):
                    del self._doubts[event.member_id, key]

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        self._replaced.pop(each.key, None)
        if each.key in self._overtaken:
            self._replaced[each.key] = self._overtaken[each.key]
        sender = (each.member_id, each.key)
        is_race = self._late.get((sender, each.committed_offset, each.at))
        if sender in self._taken_unaware or sender in self._released_while_committing:
            is_race = True
        if is_race is not None and each.before is not None:
            if each.before != each.committed_offset:
                self._overtaken[each.key] = (each.committed_offset, is_race)
        else:
            self._overtaken.pop(each.key, None)
