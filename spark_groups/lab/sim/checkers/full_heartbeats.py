"""A heartbeat whose answer was lost is followed by one that says everything."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.messages import HeartbeatRequest


class FullHeartbeats(Checker):
    """Looks at the requests themselves.

    A coordinator answers with the assignment if that is new, or if it is told all that the member
    owns. Where the answer with a new one was lost, only a full heartbeat gets it again; a short
    one with the epoch before is fenced, and the member loses what it reads. Each run of a query is
    asked for itself: the next one says good-bye in the name of the one before, which may yet live.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unanswered: set[tuple[str, str]] = set()
        """Who got no answer to a heartbeat that may have arrived, and in which member's name."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Unanswered: self._lost, facts.Sent: self._sent}

    def _lost(self, fact: facts.Unanswered) -> None:
        if isinstance(fact.request, HeartbeatRequest):
            self._unanswered.add((fact.who, fact.request.member_id))

    def _sent(self, fact: facts.Sent) -> None:
        request = fact.outgoing.request
        if not isinstance(request, HeartbeatRequest):
            return
        by = (fact.who, request.member_id)
        if by not in self._unanswered:
            return
        self._unanswered.discard(by)
        if request.member_epoch >= 0 and not request.is_full:
            self.fail(f"{fact.who} lost the answer to a heartbeat and does not say everything")
