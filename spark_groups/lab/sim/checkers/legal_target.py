"""A target assignment is legal: each partition once, and for members only."""

from __future__ import annotations

from spark_groups.lab.coordinator.records import TargetMemberValue
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition


class LegalTarget(Checker):
    """Looks at the target each time the group changes."""

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._targets: list[tuple[str, TargetMemberValue]] = []
        self._member_ids: list[str] = []
        """What was looked at."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.GroupChanged: self._changed}

    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        targets, member_ids = list(group.targets.items()), list(group.members)
        if targets == self._targets and member_ids == self._member_ids:
            # Most changes are offsets.
            return
        self._targets, self._member_ids = targets, member_ids
        meant: dict[TopicIdPartition, str] = {}
        for member_id, target in targets:
            if member_id not in group.members:
                self.fail(f"{member_id} has a target and is no member")
            for key in target.partitions.partitions:
                if meant.setdefault(key, member_id) != member_id:
                    self.fail(f"{key} is meant for {meant[key]} and for {member_id}")
