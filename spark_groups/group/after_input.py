"""What follows from each input: partitions are taken over and handed over, in this order.

Assignments and revocations reach the ledger, an idle member leaves and rejoins, offsets of an
earlier run are committed before their partition is released, a revocation is acknowledged, and a
member that leaves commits first.
"""

from __future__ import annotations

from typing import Final

from spark_groups.group.batches.liveness import LEAVE_S
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import RangesInherited, RangesLost, RangesOverruled
from spark_groups.group.ledger.ledger import NOTHING_INHERITED
from spark_groups.group.member.events import (
    EpochChanged,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.group.member.member_states import MemberState
from spark_groups.types import Assignment

DECIDE_S: Final = 1.0
"""How long before the end of its time a member stops waiting for undecided finished runs: its last
heartbeat is still to be sent and answered."""
_REVOCABLE: Final = (MemberState.RECONCILING, MemberState.PREPARE_LEAVING)


class AfterInput:
    """Does, after each input, all that is due, in this order."""

    def __init__(self, parts: ClientParts) -> None:
        self.leave_by: float | None = None
        """When a member that leaves stops waiting; None: it does not leave."""
        self._parts = parts

    @property
    def decide_by(self) -> float | None:
        """When a member that leaves stops waiting for undecided finished runs."""
        return None if self.leave_by is None else self.leave_by - DECIDE_S

    def advance(self, now: float) -> None:
        """Do everything that is due after an input."""
        # Usually there is nothing to do: each part has a cheap check for that.
        parts, member = self._parts, self._parts.member
        parts.warm_up.look(now)
        if member.events:
            self._take_member_events(now)
        if parts.liveness.must_leave(now):
            # A static member keeps its partitions until its session expires.
            self.leave(now, leave_by=now + LEAVE_S, will_return=True)
        elif parts.liveness.may_rejoin():
            self.leave_by = None
            parts.search.reached()
            self._drop(Assignment(frozenset(parts.ledger.owned)), "the member had left", now)
            member.return_to_group(now)
        self._inherit(now)
        is_revoking = bool(member.revoking.partitions) and member.state in _REVOCABLE
        if is_revoking and parts.revocation.may_be_acknowledged(now):
            member.acknowledge(now)
            self._take_member_events(now)
        if not member.revoking.partitions:
            parts.revocation.hold.forget()
        if self.leave_by is not None:
            self._continue_leaving(now, self.leave_by)
        if member.events:
            self._take_member_events(now)

    def leave(self, now: float, *, leave_by: float, will_return: bool) -> None:
        """Begin to leave the group, unless the member does; `advance` continues.

        Args:
            leave_by: When to stop waiting, in seconds.
            will_return: True for a static member that keeps its partitions.
        """
        member = self._parts.member
        self._parts.liveness.leaves()
        if member.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            return
        member.leave(now, will_return=will_return)
        self.leave_by = leave_by
        self.advance(now)

    def _inherit(self, now: float) -> None:
        """Commit the offsets of an earlier run, before their partition is released."""
        parts = self._parts
        inheritance = parts.ledger.inherit(parts.member.member_epoch)
        if inheritance is NOTHING_INHERITED:
            return
        parts.commits.add(inheritance.commits)
        if inheritance.taken:
            parts.positions.emit(RangesInherited(now, inheritance.taken))
        if inheritance.overruled:
            parts.positions.emit(RangesOverruled(now, inheritance.overruled))

    def _take_member_events(self, now: float) -> None:
        parts = self._parts
        for event in parts.member.poll_events():
            parts.positions.emit(event)
            match event:
                case PartitionsAssigned(partitions=partitions):
                    parts.positions.assign(partitions, event.member_epoch, now)
                    for key in partitions:
                        parts.deleted.unread_when_dropped.pop(key, None)
                    parts.target.changed(now)
                case PartitionsRevoked(partitions=partitions):
                    self._drop(partitions, "revoked before they were committed", now)
                    parts.target.changed(now)
                case PartitionsLost(partitions=partitions, reason=reason):
                    self._drop(partitions, reason, now)
                    parts.target.changed(now)
                case EpochChanged():
                    parts.target.changed(now)

    def _drop(self, partitions: Assignment, reason: str, now: float) -> None:
        parts = self._parts
        for key in partitions:
            parts.deleted.unread_when_dropped[key] = parts.planner.forget(key)
        parts.ledger.drop(partitions)
        dropped = {each.key for each in parts.commits.drop(partitions)}
        ranges = [parts.ledger.uncommitted(key) for key in sorted(dropped)]
        uncommitted = tuple(offset_range for offset_range in ranges if offset_range is not None)
        if uncommitted:
            parts.positions.emit(RangesLost(now, uncommitted, reason))

    def _continue_leaving(self, now: float, leave_by: float) -> None:
        parts, member = self._parts, self._parts.member
        # A batch that ran again is committed once its partitions are known to stand at its start.
        is_deciding = now < leave_by - DECIDE_S and parts.positions.is_deciding
        is_committing = parts.commits.is_pending or is_deciding
        if member.state is MemberState.PREPARE_LEAVING and (not is_committing or now >= leave_by):
            member.leave_now(now)
        elif member.state is MemberState.LEAVING and now >= leave_by:
            member.give_up_leaving(now)
