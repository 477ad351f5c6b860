"""Committed offsets of a partition never go back."""

from __future__ import annotations

from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.scene import Listeners


class CommittedNeverBack(Checker):
    """Compares each accepted offset with the one before.

    A log that lost its end may be committed below that end; and a request that arrives after its
    sender gave it up is the documented race beside `CommitQueue`.
    """

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {} if self.scene.swarm.late else {facts.Committed: self._committed}

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        if each.before is None:
            return
        if each.committed_offset < self.history.floor(each.key, each.before):
            self.fail(
                f"{each.member_id} takes {each.key} back from {each.before} to"
                f" {each.committed_offset}"
            )
