"""A batch is planned of what the coordinator lets its member use, and of nothing else."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import TopicIdPartition


class OnlyAssigned(Checker):
    """Compares each new plan with what the coordinator last told its member that it may use.

    Who plans what is being revoked keeps everybody waiting for one more batch, however long.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._assigned: dict[str, frozenset[TopicIdPartition]] = {}
        """What each member was told last that it may use."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Triggered: self._triggered, facts.Answered: self._answered}

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None:
            return
        assigned = self._assigned.get(fact.plan.member_id, frozenset())
        if planned := sorted(map(str, fact.plan.partitions() - assigned)):
            self.fail(f"{fact.who} planned {', '.join(planned)}, which it may not use")

    def _answered(self, fact: facts.Answered) -> None:
        request, response = fact.request, fact.response
        if not isinstance(request, HeartbeatRequest):
            return
        assert isinstance(response, HeartbeatResponse)
        if response.assignment is not None and not response.error_code:
            self._assigned[request.member_id] = response.assignment.partitions
