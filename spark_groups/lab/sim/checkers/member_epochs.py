"""The epochs that a member is told never go back, and never run ahead of the group."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.events import EpochChanged


class MemberEpochs(Checker):
    """Follows each member id.

    What a coordinator wrote and lost before it was replicated was told to nobody.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._told: dict[str, int] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Happened: self._happened, facts.GroupChanged: self._changed}

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, EpochChanged):
            before = self._told.get(event.member_id, 0)
            if event.member_epoch < before:
                self.fail(f"{event.member_id} is at {event.member_epoch} after {before}")
            self._told[event.member_id] = event.member_epoch

    def _changed(self, fact: facts.GroupChanged) -> None:
        group, assignment_epoch = fact.group, fact.group.assignment_epoch
        if assignment_epoch > group.group_epoch:
            self.fail(f"the target is at {assignment_epoch}, the group at {group.group_epoch}")
        for member in group.members.values():
            if member.member_epoch > assignment_epoch:
                self.fail(
                    f"{member.member_id} is at {member.member_epoch}, the target at"
                    f" {assignment_epoch}"
                )
