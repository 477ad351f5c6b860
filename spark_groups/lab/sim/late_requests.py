"""Requests that arrive after their senders gave them up, and whether these could have told.

A request on a connection that broke may reach the coordinator seconds later. A member sends such a
commit again and looks it up before it counts: what arrives before the look-up is seen and mended,
what arrives afterwards nobody can tell. That race is documented beside `CommitQueue` in
`spark_groups/offsets/commits.py`.

A heartbeat that comes late is the other one. It names the epoch before the present one and what its
sender owned then, so the coordinator takes it for the news that everything else was given up, and
gives that to others while it is read. A join that comes late says that its sender owns nothing,
and a leave that it is gone: they take all of it in the same way. The answer to a join that comes
late may be the only one that names what its sender is given: a query asks what the group says of
it, and sends everything again; a plain consumer never knows. The protocol has nothing to tell such
a request from a timely one. Checkers excuse these races, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from spark_groups.errors import ErrorCode
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.coordination import AcceptedOffset
from spark_groups.protocol import messages as m
from spark_groups.protocol.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.types import TopicIdPartition

Sender = tuple[str, TopicIdPartition]
"""A member id and a partition that it commits."""


class Doubt(Enum):
    """How far a member is with a commit that got no answer."""

    UNANSWERED = "it may have been accepted, or may yet be"
    REPEATED = "it was sent again, and that was accepted"
    LOOKED_UP = "what is committed was shown since"


class LateRequests:
    """Follows each commit that got no answer, and what late heartbeats have taken from members."""

    def __init__(self) -> None:
        self._misheard: set[Sender] = set()
        """What a coordinator took from a member, until that member gives it up."""
        self._untold: set[Sender] = set()
        """What a coordinator gave a plain consumer that does not know it."""
        self._doubts: dict[Sender, Doubt] = {}
        self._assigned_at: dict[Sender, int] = {}
        """The member epoch at which a partition was assigned to a member last."""
        self._late: dict[tuple[Sender, int, float], bool] = {}
        """Commits that came late, with whether their sender could not tell any more: by what they
        commit, and when they came."""
        self._overtaken: dict[TopicIdPartition, tuple[int, bool]] = {}
        """What a late commit has left committed, with whether its sender could not tell."""
        self._replaced: dict[TopicIdPartition, tuple[int, bool]] = {}
        """The same as it was before the last accepted offset."""

    def listeners(self) -> Mapping[type, Callable[[Any], None]]:
        """Return what to call for each kind of fact."""
        return {
            facts.Unanswered: self._unanswered,
            facts.Answered: self._answered,
            facts.CameLate: self._came_late,
            facts.Committed: self._committed,
            facts.Misheard: self._hear_wrong,
            facts.Happened: self._happened,
        }

    def is_late(self, each: AcceptedOffset) -> bool:
        """Tell whether an accepted offset came late, or from whom the partition was taken."""
        if not self._late and not self._misheard:
            return False
        sender = (each.member_id, each.key)
        return (sender, each.committed_offset, each.at) in self._late or sender in self._misheard

    def is_misheard(self, member_id: str, key: TopicIdPartition) -> bool:
        """Tell whether a late heartbeat took a partition from a member that does not know it."""
        return (member_id, key) in self._misheard

    def is_untold(self, member_id: str | None, key: TopicIdPartition) -> bool:
        """Tell whether a late heartbeat gave a partition to a plain consumer that does not know."""
        return (member_id, key) in self._untold

    def undoes_late(self, each: AcceptedOffset) -> bool:
        """Tell whether what an accepted offset replaced was left by a commit that came late."""
        left = self._replaced.get(each.key)
        return left is not None and left[0] == each.before

    def is_doubted(self, member_id: str, key: TopicIdPartition) -> bool:
        """Tell whether a member has not looked up yet what became of a commit without an answer."""
        return self._doubts.get((member_id, key)) in (Doubt.UNANSWERED, Doubt.REPEATED)

    def overtook(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        """Tell whether a late commit left this committed, whoever could have told."""
        left = self._overtaken.get(key)
        return left is not None and left[0] == committed_offset

    def is_race(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        """Tell whether a late commit left this committed, and nobody could tell."""
        return self._overtaken.get(key) == (committed_offset, True)

    def _unanswered(self, fact: facts.Unanswered) -> None:
        request = fact.request
        if isinstance(request, m.OffsetCommitRequest):
            for key in request.offsets:
                sender = (request.member_id, key)
                # The coordinator refuses a commit of an earlier assignment: no look-up is needed.
                if request.member_epoch >= self._assigned_at.get(sender, 0):
                    self._doubts[sender] = Doubt.UNANSWERED

    def _answered(self, fact: facts.Answered) -> None:
        if not self._doubts:
            return
        match fact.request, fact.response:
            case m.OffsetCommitRequest(member_id=member_id), m.OffsetCommitResponse(errors=errors):
                for key, code in errors.items():
                    if code == ErrorCode.NONE:
                        self._move((member_id, key), Doubt.UNANSWERED, Doubt.REPEATED)
            case m.OffsetFetchRequest(member_id=str(member_id)), m.OffsetFetchResponse() as shown:
                for key in shown.offsets:
                    self._move((member_id, key), Doubt.REPEATED, Doubt.LOOKED_UP)

    def _move(self, sender: Sender, before: Doubt, after: Doubt) -> None:
        if self._doubts.get(sender) is before:
            self._doubts[sender] = after

    def _came_late(self, fact: facts.CameLate) -> None:
        request = fact.request
        if not isinstance(request, m.OffsetCommitRequest):
            return
        for key, each in request.offsets.items():
            sender = (request.member_id, key)
            is_race = self._doubts.get(sender) is Doubt.LOOKED_UP
            self._late[sender, each.committed_offset, fact.at] = is_race

    def _hear_wrong(self, fact: facts.Misheard) -> None:
        self._misheard.update((fact.member_id, key) for key in fact.taken)
        self._untold.update((fact.member_id, key) for key in fact.given)

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if self._misheard and isinstance(event, PartitionsRevoked | PartitionsLost):
            self._misheard -= {(event.member_id, key) for key in event.partitions}
        if isinstance(event, PartitionsAssigned):
            self._untold -= {(event.member_id, key) for key in event.partitions}
            # A commit of the tenure before is forgotten with it: there is nothing to look up.
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
        if sender in self._misheard:
            is_race = True
        if is_race is not None and each.before is not None:
            if each.before != each.committed_offset:
                self._overtaken[each.key] = (each.committed_offset, is_race)
        else:
            self._overtaken.pop(each.key, None)
