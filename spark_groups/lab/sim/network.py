"""What lies between members and brokers: delay, loss, duplication, cuts.

A connection carries one request at a time, in order; requests of different connections overtake
each other. A request does not arrive after its sender was told that it failed, unless `late` lets
it: that race is documented beside `CommitQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_groups.client.channels import Outgoing
from spark_groups.lab.sim.chance import Chance
from spark_groups.lab.sim.schedule import Schedule
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.protocol.messages import RequestFailed, Response

NEAREST_S: Final = 0.001
FARTHEST_S: Final = 0.01
BREAKS_S: Final = (0.02, 0.5)
"""After how many seconds a connection breaks under an answer to a member that hears nothing."""
LATEST_S: Final = 6.0
"""How late a request may arrive whose sender gave it up."""
ANY_BROKER: Final = 0
"""Where requests go that any broker may answer."""

Reply = Callable[[Response | None], None]
Serve = Callable[[Outgoing, Reply], None]


class Network:
    """Carries requests, and their answers or the news that there is none.

    Args:
        serve: The brokers: takes a request and replies, sooner or later; None if they died.
        serve_late: The same for requests that arrive after their sender gave them up.
    """

    def __init__(
        self,
        schedule: Schedule,
        chance: Chance,
        swarm: Swarm,
        serve: Serve,
        serve_late: Serve,
    ) -> None:
        self.is_faulty = True
        self._schedule = schedule
        self._chance = chance
        self._swarm = swarm
        self._serve = serve
        self._serve_late = serve_late
        self._cut: dict[tuple[str, int], float] = {}
        self._deaf: dict[tuple[str, int], float] = {}

    def cut(self, sender: str, node_id: int, for_s: float) -> None:
        """Let nothing through between a sender and a node."""
        self._cut[sender, node_id] = self._schedule.now + for_s

    def deafen(self, sender: str, node_id: int, for_s: float) -> None:
        """Let requests through from a sender to a node, and no answer back."""
        self._deaf[sender, node_id] = self._schedule.now + for_s

    def send(
        self,
        sender: str,
        outgoing: Outgoing,
        answered: Callable[[Response], None],
        failed: Callable[[RequestFailed], None],
    ) -> None:
        """Carry a request."""
        chance, swarm, schedule = self._chance, self._swarm, self._schedule
        link = (sender, outgoing.node.node_id if outgoing.node else ANY_BROKER)
        lost = self._is_cut(link) or (self.is_faulty and chance.random() < swarm.loss)
        there_s = chance.uniform(NEAREST_S, FARTHEST_S)
        if lost:
            self._lose(link, outgoing, failed, there_s)
            return
        back_s = chance.uniform(NEAREST_S, FARTHEST_S)
        if self.is_faulty and chance.random() < swarm.delay:
            back_s = chance.uniform(0.5, 4.0)

        def reply(response: Response | None) -> None:
            if response is None or self._is_cut(link):
                self._fail(outgoing, failed, arrived=True)
            elif self._is_deaf(link):
                self._tell(failed, chance.choice(BREAKS_S), arrived=True)
            else:
                schedule.after(back_s, lambda: answered(response))

        schedule.after(there_s, lambda: self._serve(outgoing, reply))
        if self.is_faulty and chance.random() < swarm.duplicates:
            # Later the sender may have gone on: a connection never mixes up its requests.
            schedule.after(there_s, lambda: self._serve(outgoing, _nobody))

    def _is_cut(self, link: tuple[str, int]) -> bool:
        return self._schedule.now < self._cut.get(link, 0.0)

    def _is_deaf(self, link: tuple[str, int]) -> bool:
        return self._schedule.now < self._deaf.get(link, 0.0)

    def _lose(
        self,
        link: tuple[str, int],
        outgoing: Outgoing,
        failed: Callable[[RequestFailed], None],
        there_s: float,
    ) -> None:
        arrives = not self._is_cut(link) and self._chance.random() < 0.5
        gives_up_s = self._fail(outgoing, failed, arrived=arrives)
        if arrives:
            if self._swarm.late:
                there_s = self._chance.uniform(0.0, LATEST_S)
            else:
                there_s = min(there_s, gives_up_s)

            serve = self._serve_late if there_s > gives_up_s else self._serve
            self._schedule.after(there_s, lambda: serve(outgoing, _nobody))

    def _fail(
        self, outgoing: Outgoing, failed: Callable[[RequestFailed], None], *, arrived: bool
    ) -> float:
        """Tell a sender that there is no answer, and return in how many seconds it is told."""
        gives_up_s = self._chance.choice((0.02, 1.0, outgoing.timeout_s))
        self._tell(failed, gives_up_s, arrived=arrived)
        return gives_up_s

    def _tell(
        self, failed: Callable[[RequestFailed], None], gives_up_s: float, *, arrived: bool
    ) -> None:
        # Whoever sent it cannot be sure that it did not arrive, unless no byte went out.
        failure = RequestFailed("lost", may_have_arrived=arrived or self._chance.random() < 0.5)
        self._schedule.after(gives_up_s, lambda: failed(failure))


def _nobody(_response: Response | None) -> None:
    """Take an answer that nobody waits for."""
