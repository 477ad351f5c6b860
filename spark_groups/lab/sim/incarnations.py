"""One run of a streaming query's driver: a production client, its clock, its pauses, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_groups.client.channels import Outgoing
from spark_groups.client.group_client import GroupClient
from spark_groups.lab.sim.facts import Answered, Happened, Sent, Unanswered
from spark_groups.lab.sim.scene import Scene
from spark_groups.lab.sim.schedule import Clock
from spark_groups.offsets.events import RevocationHeld
from spark_groups.protocol.events import Event, NameOf
from spark_groups.protocol.messages import RequestFailed, Response

Act = Callable[[GroupClient, float], object]
"""Something done to a client, at an instant of its clock."""
HELD_S: Final = (0.0, 0.5, 4.0, 30.0)
"""How long a rebalance listener holds a revocation: less than its budget, and more."""


class Incarnation:
    """A client that is driven as in production: by answers, and when it asks to be woken.

    A missing wake-up shows as a run that never comes to rest.
    """

    def __init__(self, scene: Scene, name: str, client: GroupClient, clock: Clock) -> None:
        self.name = name
        self.client = client
        self.is_alive = True
        self.paused_until = 0.0
        self.clock = clock
        self._scene = scene
        self._wake_at: float | None = None

    @property
    def now(self) -> float:
        """What its clock shows."""
        return self.clock.local(self._scene.now)

    def die(self) -> None:
        """End without a word."""
        self.is_alive = False

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""
        self.paused_until = self._scene.now + for_s
        self._scene.schedule.at(self.paused_until, self.pump)

    def take(self, act: Act) -> None:
        """Let something be done to the client now, or once it is awake, and see what follows."""
        if not self.is_alive:
            return
        if self._scene.now < self.paused_until:
            self._scene.schedule.at(self.paused_until, lambda: self.take(act))
            return
        act(self.client, self.now)
        self.pump()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something in so many seconds, once it is awake, if it still lives."""

        def due() -> None:
            if not self.is_alive:
                return
            if self._scene.now < self.paused_until:
                self._scene.schedule.at(self.paused_until, due)
                return
            act()

        self._scene.schedule.after(delay_s, due)

    def pump(self) -> None:
        """Send what is to be sent and ask to be woken."""
        scene, client = self._scene, self.client
        if not self.is_alive or scene.now < self.paused_until:
            return
        now = self.now
        for outgoing in client.poll_requests(now):
            scene.tell(Sent(self.name, outgoing))
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
            lambda answer: self.take(lambda _, now: self._hear(outgoing, answer, now)),
            lambda failed: self.take(lambda _, now: self._hear_nothing(outgoing, failed, now)),
        )

    def _hear(self, outgoing: Outgoing, answer: Response, now: float) -> None:
        self._scene.tell(Answered(self.name, outgoing.request, answer))
        self.client.handle_response(outgoing, answer, now)

    def _hear_nothing(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        if failed.may_have_arrived:
            self._scene.tell(Unanswered(self.name, outgoing.request))
        self.client.handle_failure(outgoing, failed, now)

    def _wake(self, wake_at: float) -> None:
        if self._wake_at == wake_at:
            self._wake_at = None
            self.pump()

    def _say(self, event: Event) -> None:
        epoch = str(self.client.member_epoch)
        told = _Told(event, self.client.topic_name)
        self._scene.log.add(self._scene.now, self.name, epoch, "says", told)
        self._scene.tell(Happened(self.name, event))
        if isinstance(event, RevocationHeld):
            release_s = self._scene.chance.choice(HELD_S)
            self.after(release_s, lambda: self._release(event.number))

    def _release(self, number: int) -> None:
        self.take(lambda client, now: client.release_revocation(number, now))


class _Told:
    """An event that is written as a sentence if somebody reads it."""

    __slots__ = ("_event", "_name_of")

    def __init__(self, event: Event, name_of: NameOf) -> None:
        self._event = event
        self._name_of = name_of

    def __str__(self) -> str:
        return self._event.text(self._name_of)
