"""No two members that believe themselves current own one partition at one moment."""

from __future__ import annotations

from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.events import PartitionsAssigned
from spark_groups.protocol.membership import MemberState
from spark_groups.types import TopicIdPartition


class SingleOwner(Checker):
    """Looks at the coordinator's side, at what clients believe, and at who plans.

    What a heartbeat that came late took from a member is excused: nobody can tell (`LateRequests`).
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._members: list[GroupMember] = []
        """Members that were looked at."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: self._changed,
            facts.Happened: self._happened,
            facts.Triggered: self._triggered,
        }

    def _changed(self, fact: facts.GroupChanged) -> None:
        members = list(fact.group.members.values())
        if members == self._members:
            # Most changes are offsets.
            return
        self._members = members
        held: dict[TopicIdPartition, str] = {}
        for member in members:
            for key in (*member.assigned, *member.pending_revocation):
                if held.setdefault(key, member.member_id) != member.member_id:
                    self.fail(f"the coordinator says {held[key]} and {member.member_id} hold {key}")

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        members = self.scene.coordination.group.members
        if not isinstance(event, PartitionsAssigned) or event.member_id not in members:
            return
        for other in self.scene.participants:
            member = other.member
            if member is None or member.member_id not in members:
                continue
            # Whoever has said good-bye uses nothing any more, whether or not that was answered.
            if member.member_id == event.member_id or member.state is MemberState.LEAVING:
                continue
            for key in event.partitions.partitions & member.owned.partitions:
                if not self.scene.late.is_misheard(member.member_id, key):
                    self.fail(f"{fact.who} is given {key} while {other.name} owns it")

    def _triggered(self, fact: facts.Triggered) -> None:
        coordination, plan = self.scene.coordination, fact.plan
        if plan is None or self.is_unaware(plan.member_id):
            return
        for each in plan.ranges:
            holder = coordination.holder(each.key)
            is_misheard = self.scene.late.is_misheard(plan.member_id, each.key)
            if holder != plan.member_id and not is_misheard:
                self.fail(f"{fact.who} planned {each} as {plan.member_id}, but {holder} has it")
