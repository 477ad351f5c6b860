"""When faults stop, the group becomes stable within a bounded time, and current is target."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.scene import Listeners, restless
from spark_groups.types import TopicIdPartition


class ComesToRest(Checker):
    """Everything is stable, read and committed when the run is over.

    What a late commit has left, and nobody could tell, may stay as it is; so may what a plain
    consumer was given by the answer to a late join.
    """

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Quiet: self._quiet}

    def _quiet(self, _fact: facts.Quiet) -> None:
        reasons = list(restless(self.scene, self._is_excused))
        if reasons:
            self.fail("never came to rest: " + "; ".join(reasons))

    def _is_excused(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        late, holder = self.scene.late, self.scene.coordination.holder(key)
        return late.is_race(key, committed_offset) or late.is_untold(holder, key)
