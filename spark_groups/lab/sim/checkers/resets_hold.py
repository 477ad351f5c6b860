"""An offset that an operator has set is where the next batch of its partition begins."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition


class ResetsHold(Checker):
    """Nothing that a checkpoint remembers undoes a reset; a batch that runs again is no new one.

    Where a log lost its end, a member goes on below what it has lost.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._set: dict[TopicIdPartition, int] = {}
        """Offsets that were set, and from which nobody has planned yet."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.OffsetReset: self._reset,
            facts.Triggered: self._triggered,
            facts.Committed: self._committed,
        }

    def _reset(self, fact: facts.OffsetReset) -> None:
        self._set[fact.key] = fact.new_offset

    def _triggered(self, fact: facts.Triggered) -> None:
        for each in fact.plan.ranges if fact.plan else ():
            new_offset = self._set.pop(each.key, None)
            if new_offset is not None:
                self._compare(f"{fact.who} plans", each.key, each.from_offset, new_offset)

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        new_offset = self._set.get(each.key)
        if new_offset is not None:
            self._compare(f"{each.member_id} commits", each.key, each.committed_offset, new_offset)

    def _compare(self, what: str, key: TopicIdPartition, offset: int, new_offset: int) -> None:
        if offset != new_offset and key not in self.history.cut:
            self.fail(f"{what} {key} from {offset} on, but it was set to {new_offset}")
