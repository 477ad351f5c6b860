"""A group that says it is stable has reconciled: everybody has what is meant for them."""

from __future__ import annotations

from spark_groups.lab.coordinator.group import GroupState
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.scene import Listeners


class StableGroup(Checker):
    """STABLE: each member's assignment is its target, and together they are all there is to read.

    A coordinator that has not compared the group with the topics of the moment, or has not matched
    a pattern with them, cannot know.
    """

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
        is_compared = group.topics_version == self.scene.storage.image.version
        if is_compared and not self.scene.swarm.by_pattern:
            held = {key for member in group.members.values() for key in member.assigned}
            if missing := self.scene.storage.logs.keys() ^ held:
                self.fail(f"the group is stable, but these are missing or too many: {missing}")
