"""Committed offsets of a partition never go back."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.scene import Listeners


class CommittedNeverBack(Checker):
    """Compares each accepted offset with the one before.

    A log that lost its end may be committed below that end. A request that arrives after its sender
    gave it up takes offsets back and forth: whether that is noticed is for `CleanHandOver` and
    `ComesToRest` to say.
    """

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Committed: self._committed}

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        late = self.scene.late
        if each.before is None or late.is_late(each) or late.undoes_late(each):
            return
        if each.committed_offset < self.history.floor(each.key, each.before):
            self.fail(
                f"{each.member_id} takes {each.key} back from {each.before} to"
                f" {each.committed_offset}"
            )
