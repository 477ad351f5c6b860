"""A target assignment is legal: each partition once, and for members only."""

from __future__ import annotations

from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.scene import Listeners
from spark_groups.types import TopicIdPartition


class LegalTarget(Checker):
    """Looks at the target each time the group changes."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.GroupChanged: self._changed}

    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        meant: dict[TopicIdPartition, str] = {}
        for member_id, target in group.targets.items():
            if member_id not in group.members:
                self.fail(f"{member_id} has a target and is no member")
            for key in target.partitions.partitions:
                if meant.setdefault(key, member_id) != member_id:
                    self.fail(f"{key} is meant for {meant[key]} and for {member_id}")
