"""Nothing is asked again and again without a pause."""

from __future__ import annotations

from collections import Counter
from typing import Final

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene

REQUESTS_PER_SECOND_MAX: Final = 60
"""More on one channel means that something is asked without a pause."""


class RequestPace(Checker):
    """Counts the requests of each channel in each second."""

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._counts: Counter[tuple[str, object]] = Counter()
        self._second = -1

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Sent: self._sent}

    def _sent(self, fact: facts.Sent) -> None:
        if int(self.scene.now) != self._second:
            self._second = int(self.scene.now)
            self._counts.clear()
        channel = (fact.who, fact.outgoing.channel)
        self._counts[channel] += 1
        if self._counts[channel] > REQUESTS_PER_SECOND_MAX:
            self.fail(f"{fact.who} asks {fact.outgoing.request} again and again")
