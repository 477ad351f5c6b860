"""A plan that Spark replays has the same rows, retention aside."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene


class SameRows(Checker):
    """Compares what a batch reads with what it read before, until it is finished."""

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unfinished: dict[str, facts.Read] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Read: self._read,
            facts.Finished: self._over,
            facts.Forgotten: self._over,
        }

    def _read(self, fact: facts.Read) -> None:
        before = self._unfinished.setdefault(fact.who, fact)
        if before.plan != fact.plan:
            self.fail(f"{fact.who} replays {fact.plan.ranges} for {before.plan.ranges}")
        logs = self.scene.storage.logs
        for key in logs.keys() & before.records.keys():
            is_whole = key not in self.history.cut and key not in self.history.aged
            if is_whole and fact.records.get(key) != before.records[key]:
                self.fail(f"{fact.who} reads other rows of {key} when it replays a plan")

    def _over(self, fact: facts.Finished | facts.Forgotten) -> None:
        self._unfinished.pop(fact.who, None)
