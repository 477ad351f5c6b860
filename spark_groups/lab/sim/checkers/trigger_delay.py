"""Fewer records than `minOffsetsPerTrigger` are not read before `maxTriggerDelay`."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene

ROUNDING_S: Final = 0.01


class TriggerDelay(Checker):
    """Looks at how long after its last batch with rows a query plans a small one.

    A job waits for nothing, nor does the first batch of a run. That a small backlog is read at
    last, `KeepsReading` and `ComesToRest` watch.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._read_at: dict[str, float] = {}
        """When the run of a query planned rows last."""
        self._jobs: set[str] = set()

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Began: self._began, facts.Triggered: self._triggered}

    def _began(self, fact: facts.Began) -> None:
        self._read_at.pop(fact.who, None)
        self._jobs.discard(fact.who)
        if fact.is_job:
            self._jobs.add(fact.who)

    def _triggered(self, fact: facts.Triggered) -> None:
        swarm, now = self.scene.swarm, self.scene.now
        if fact.plan is None or not fact.plan.ranges or fact.who in self._jobs:
            return
        planned = sum(len(each) for each in fact.plan.ranges)
        waited_s = now - self._read_at.get(fact.who, now - swarm.max_delay_s)
        self._read_at[fact.who] = now
        # A limit may take less than there is.
        is_whole = not swarm.max_offsets
        least_s = swarm.max_delay_s * (1 - 2 * swarm.skew) - ROUNDING_S
        if is_whole and planned < swarm.min_offsets and waited_s < least_s:
            self.fail(f"{fact.who} planned {planned} records {waited_s:.1f} s after its last batch")
