"""No fault that passes is final, but a right that is missing; data is lost only where it is."""

from __future__ import annotations

from typing import Final

from spark_groups.client.requests.metadata import BELIEVED_S
from spark_groups.errors import ErrorCode
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.offsets.events import DataLost
from spark_groups.protocol.events import MemberFailed

FIGHTS: Final = (ErrorCode.FENCED_INSTANCE_ID.name, ErrorCode.UNRELEASED_INSTANCE_ID.name)
"""What whoever loses an instance id is told."""

DENIALS: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED.name,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
)
DENIAL_HEARD_S: Final = 40.0
"""How late an answer of before may be heard: whoever stands still hears it when awake."""


ABSENCE_HEARD_S: Final = 10.0 + BELIEVED_S
"""How long after a topic was deleted it may be believed to be away: longest absence and belief."""


class NoFinalFailure(Checker):
    """Everything that goes wrong here passes: no member may give up for good."""

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._lost: set[str] = set()
        """Partitions whose log has lost something, by name: its topic may be gone by then."""
        self._deleted_at: dict[str, float] = {}
        """When topics were deleted, by name: each is created again."""
        self._asked_at: dict[str, float] = {}
        """When a query began or was asked for a batch last: while one runs it says nothing."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Happened: self._happened,
            facts.Cut: self._loses,
            facts.Aged: self._loses,
            facts.Deleted: self._deleted,
            facts.Unavailable: self._unavailable,
            facts.Began: self._asked,
            facts.Triggered: self._asked,
        }

    def _asked(self, fact: facts.Began | facts.Triggered) -> None:
        self._asked_at[fact.who] = self.scene.now

    def _deleted(self, fact: facts.Deleted) -> None:
        self._deleted_at[fact.topic.name] = self.scene.now

    def _unavailable(self, fact: facts.Unavailable) -> None:
        there = self.scene.storage.image.by_name
        asked_at = self._asked_at.get(fact.who, self.scene.now)
        away = {
            name
            for name, deleted_at in self._deleted_at.items()
            if name not in there or asked_at - deleted_at <= ABSENCE_HEARD_S
        }
        if not any(name in fact.message for name in away):
            self.fail(f"no topic was away: {fact.who} says {fact.message}")

    def _loses(self, fact: facts.Cut | facts.Aged) -> None:
        name = self.scene.storage.name_of(fact.key.topic_id)
        self._lost.add(f"{name}-{fact.key.partition}")

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, MemberFailed) and not (
            self._is_replaced(event) or self._is_denied(event)
        ):
            self.fail(f"{fact.who} gives up for good: {event.message}")
        if isinstance(event, DataLost) and not (
            any(f" {name} " in f" {event.message}" for name in self._lost)
            or self._is_named_beyond(event)
        ):
            self.fail(f"no log was cut: {event.message}")

    def _is_named_beyond(self, event: DataLost) -> bool:
        """Tell whether `startingOffsets` names what a topic that was created again lacks."""
        is_start = event.message.startswith("startingOffsets of ")
        return is_start and any(f" {name}-" in event.message for name in self._deleted_at)

    def _is_denied(self, event: MemberFailed) -> bool:
        """Tell whether a right was missing when a member gives up for that, or a moment before."""
        is_said = any(name in event.message for name in DENIALS)
        return is_said and self.scene.rights.missed_since(self.scene.now - DENIAL_HEARD_S)

    def _is_replaced(self, event: MemberFailed) -> bool:
        """Tell whether two runs of one query fight for its instance id, as frozen ones do."""
        if not event.message.startswith(FIGHTS):
            return False
        current = [each.member for each in self.scene.participants if each.member]
        is_current = any(each.member_id == event.member_id for each in current)
        return not is_current or bool(self.scene.swarm.static and self.scene.swarm.zombies)
