"""A group that says it is stable has reconciled: everybody has what is meant for them."""

from __future__ import annotations

from spark_groups.coordinator.group import GroupState
from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.scene import Listeners


class StableGroup(Checker):
    """STABLE: each member's assignment is its target."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.GroupChanged: self._changed}

    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        if group.state is not GroupState.STABLE:
            return
        for member in group.members.values():
            target = group.targets.get(member.member_id)
            wanted = target.partitions.partitions if target else frozenset()
            if wanted != member.assigned.keys() or member.pending_revocation:
                self.fail(f"the group is stable, but {member.member_id} has not what it should")
