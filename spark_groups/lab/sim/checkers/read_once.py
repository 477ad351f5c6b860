"""No row is read by two finished batches unless a commit was not accepted between them."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.scene import Listeners


class ReadOnce(Checker):
    """Nobody plans what is committed; and without a fault nothing is read twice at all."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Triggered: self._triggered, facts.Quiet: self._quiet}

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or self.is_unaware(fact.plan.member_id):
            return
        for each in fact.plan.ranges:
            committed = self.scene.coordination.committed(each.key)
            if self.scene.late.overtook(each.key, committed):
                continue
            floor = 0 if committed is None else self.history.floor(each.key, committed)
            if each.from_offset < floor:
                self.fail(f"{fact.who} planned {each} again: {committed} is committed")

    def _quiet(self, _fact: facts.Quiet) -> None:
        history = self.history
        if self.scene.swarm.is_calm and not history.gave_up and history.read_again:
            self.fail(f"{history.read_again} ranges were read twice without a fault")
