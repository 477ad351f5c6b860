"""A batch is planned of nothing that its member is to give up."""

from __future__ import annotations

from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.scene import Listeners


class OnlyAssigned(Checker):
    """Compares each new plan with what the coordinator last told its member that it may use.

    Who plans what is being revoked keeps everybody waiting for one more batch, however long.
    """

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Triggered: self._triggered}

    def _triggered(self, fact: facts.Triggered) -> None:
        revoking = fact.client.member.revoking
        if fact.plan is None or not revoking:
            return
        if planned := sorted(map(str, fact.plan.partitions() & revoking.partitions)):
            self.fail(f"{fact.who} planned {', '.join(planned)}, which it is to give up")
