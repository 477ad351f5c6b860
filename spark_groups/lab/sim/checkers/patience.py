"""The coordinator waits for nobody longer than the session and rebalance time-outs say."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene

SLACK_S: Final = 2.0
"""How much later it may be: a log that takes nothing is tried again after a second."""


class Patience(Checker):
    """Looks for members that are silent, or have something to give up, for too long.

    Each node begins to count anew when it takes over.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._revoking: dict[str, tuple[object, float]] = {}
        """What each member is to give up, and since when."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: lambda fact: self._look_at(fact.group),
            facts.Quiet: lambda _: self._look_at(self.scene.coordination.group),
            facts.Replaced: lambda _: self._revoking.clear(),
        }

    def _look_at(self, group: ConsumerGroup) -> None:
        coordination = self.scene.coordination
        if not coordination.answers:
            return
        now = self.scene.now
        for member in group.members.values():
            heard_at = coordination.heard_at.get(member.member_id, now)
            silent_s = self._overdue_s(heard_at, self.scene.swarm.session_s)
            if silent_s > 0:
                self.fail(f"{member.member_id} is silent, {silent_s:.1f} s longer than it may")
            self._look_at_revocation(member)
        for gone in self._revoking.keys() - group.members.keys():
            del self._revoking[gone]

    def _look_at_revocation(self, member: GroupMember) -> None:
        if not member.pending_revocation:
            self._revoking.pop(member.member_id, None)
            return
        revoking = frozenset(member.pending_revocation)
        known, since = self._revoking.get(member.member_id, (frozenset(), self.scene.now))
        if revoking != known:
            self._revoking[member.member_id] = (revoking, self.scene.now)
            return
        slow_s = self._overdue_s(since, member.rebalance_timeout_ms / 1000)
        if slow_s > 0:
            self.fail(f"{member.member_id} revokes, {slow_s:.1f} s longer than it may")

    def _overdue_s(self, since: float, timeout_s: float) -> float:
        # Nobody can be removed while the log takes nothing.
        due_at = max(since + timeout_s, self.scene.coordination.failing_until)
        return self.scene.now - due_at - SLACK_S - self.scene.swarm.replication_s
