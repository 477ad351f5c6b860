"""The network between members and brokers: delay, loss, duplication, cuts.

A connection carries one request at a time, in order; requests on different connections overtake
each other. A request never arrives after its sender learned of its failure, unless `late` allows
that race, documented beside `CommitQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from group_lab.sim.chance import Chance
from group_lab.sim.schedule import Schedule
from group_lab.sim.swarm import Swarm
from spark_groups.group.member.messages import RequestFailed, Response
from spark_groups.group.requests.channels import Outgoing

NEAREST_S: Final = 0.001
FARTHEST_S: Final = 0.01
BREAKS_S: Final = (0.02, 0.5)
"""After how many seconds the connection of a member breaks that receives no answers."""
LATEST_S: Final = 6.0
"""How late a request may arrive after its sender stopped waiting."""
ANY_BROKER: Final = 0
"""The node id of requests that any broker may answer."""

Reply = Callable[[Response | None], None]
Serve = Callable[[Outgoing, Reply], None]


class Network:
    """Carries requests and answers, and reports failures.

    Args:
        serve: The brokers: answers a request, sooner or later; with None if the node died.
        serve_late: The same for requests that arrive after their sender stopped waiting.
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
        """Drop everything between a sender and a node."""
        self._cut[sender, node_id] = self._schedule.now + for_s

    def deafen(self, sender: str, node_id: int, for_s: float) -> None:
        """Drop a node's answers to a sender; its requests still arrive."""
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
                self._report_failure(failed, chance.choice(BREAKS_S), arrived=True)
            else:
                schedule.after(back_s, lambda: answered(response))

        schedule.after(there_s, lambda: self._serve(outgoing, reply))
        if self.is_faulty and chance.random() < swarm.duplicates:
            # At the same instant: a connection never reorders its requests.
            schedule.after(there_s, lambda: self._serve(outgoing, _dropped))

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
            self._schedule.after(there_s, lambda: serve(outgoing, _dropped))

    def _fail(
        self, outgoing: Outgoing, failed: Callable[[RequestFailed], None], *, arrived: bool
    ) -> float:
        """Report a failure to the sender after some seconds; return how many."""
        gives_up_s = self._chance.choice((0.02, 1.0, outgoing.timeout_s))
        self._report_failure(failed, gives_up_s, arrived=arrived)
        return gives_up_s

    def _report_failure(
        self, failed: Callable[[RequestFailed], None], gives_up_s: float, *, arrived: bool
    ) -> None:
        # A sender knows that a request did not arrive only if no byte went out.
        failure = RequestFailed("lost", may_have_arrived=arrived or self._chance.random() < 0.5)
        self._schedule.after(gives_up_s, lambda: failed(failure))


def _dropped(_response: Response | None) -> None:
    """Drop an answer whose sender stopped waiting."""
