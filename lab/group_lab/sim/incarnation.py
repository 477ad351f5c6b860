"""One run of a query's driver: a client, its requests, its wake-ups and its rebalance listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from group_lab.sim.facts import Answered, Happened, Sent, Unanswered
from group_lab.sim.scene import Scene
from group_lab.sim.schedule import Clock
from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.events import RevocationHeld
from spark_groups.group.member.events import Event, NameOf
from spark_groups.group.member.messages import RequestFailed, Response
from spark_groups.group.requests.channels import Outgoing

Act = Callable[[GroupClient, float], object]
"""An action on a client, at an instant of its clock."""
HELD_S: Final = (0.0, 0.5, 4.0, 30.0)
"""How long a rebalance listener holds a revocation: within its budget, and longer."""


class Incarnation:
    """One run of a query's driver: a production client, driven by answers and its own wake-ups.

    A missing wake-up shows as a run that never settles.
    """

    def __init__(self, scene: Scene, name: str, client: GroupClient, clock: Clock) -> None:
        self.name = name
        self.client = client
        self.is_alive = True
        self.paused_until = 0.0
        self.clock = clock
        self.waits: Callable[[], None] | None = None
        """Called after each input, while a trigger waits."""
        self._scene = scene
        self._wake_at: float | None = None

    @property
    def now(self) -> float:
        """The time of its clock."""
        return self.clock.local(self._scene.now)

    def die(self) -> None:
        """End without a leave."""
        self.is_alive = False

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""
        self.paused_until = self._scene.now + for_s
        self._scene.schedule.at(self.paused_until, self.pump)

    def take(self, act: Act) -> None:
        """Act on the client now, or once it is awake, then send its requests, and poll."""
        if not self.is_alive:
            return
        if self._scene.now < self.paused_until:
            self._scene.schedule.at(self.paused_until, lambda: self.take(act))
            return
        act(self.client, self.now)
        self.pump()
        if self.waits is not None:
            self.waits()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Act after a delay, once it is awake, if it is still alive."""

        def due() -> None:
            if not self.is_alive:
                return
            if self._scene.now < self.paused_until:
                self._scene.schedule.at(self.paused_until, due)
                return
            act()

        self._scene.schedule.after(delay_s, due)

    def pump(self) -> None:
        """Send the client's requests, report its events, and schedule its next wake-up."""
        scene, client = self._scene, self.client
        if not self.is_alive or scene.now < self.paused_until:
            return
        now = self.now
        for outgoing in client.poll_requests(now):
            scene.publish(Sent(self.name, outgoing))
            self._send(outgoing)
        for event in client.poll_events():
            self._say(event)
        wake_at = client.next_wakeup(now)
        if wake_at is not None and wake_at != self._wake_at:
            self._wake_at = wake_at
            scene.schedule.at(self.clock.instant(wake_at), lambda: self._wake(wake_at))

    def _send(self, outgoing: Outgoing) -> None:
        self._scene.network.send(
            self.name,
            outgoing,
            lambda answer: self.take(lambda _, now: self._answered(outgoing, answer, now)),
            lambda failed: self.take(lambda _, now: self._failed(outgoing, failed, now)),
        )

    def _answered(self, outgoing: Outgoing, answer: Response, now: float) -> None:
        self._scene.publish(Answered(self.name, outgoing.request, answer))
        self.client.handle_response(outgoing, answer, now)

    def _failed(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        if failed.may_have_arrived:
            self._scene.publish(Unanswered(self.name, outgoing.request))
        self.client.handle_failure(outgoing, failed, now)

    def _wake(self, wake_at: float) -> None:
        if self._wake_at == wake_at:
            self._wake_at = None
            self.take(lambda _, __: None)

    def _say(self, event: Event) -> None:
        epoch = str(self.client.parts.member.member_epoch)
        text = _EventText(event, self.client.parts.topics.name)
        self._scene.log.add(self._scene.now, self.name, epoch, "says", text)
        self._scene.publish(Happened(self.name, event))
        if isinstance(event, RevocationHeld):
            release_s = self._scene.chance.choice(HELD_S)
            self.after(release_s, lambda: self._release(event.number))

    def _release(self, number: int) -> None:
        self.take(lambda client, now: client.release_revocation(number, now))


class _EventText:
    """The text of an event, formatted when the log is read."""

    __slots__ = ("_event", "_name_of")

    def __init__(self, event: Event, name_of: NameOf) -> None:
        self._event = event
        self._name_of = name_of

    def __str__(self) -> str:
        return self._event.text(self._name_of)
