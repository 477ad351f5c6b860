"""The base class of checkers: each method takes facts of the kinds it names with `on`."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Any, NoReturn, TypeVar

from group_lab.sim.history import History
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import GroupProtocol
from spark_groups.types import TopicIdPartition


class BrokenInvariantError(AssertionError):
    """A promise was broken."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text


_Take = TypeVar("_Take", bound=Callable[..., None])


def on(*kinds: type) -> Callable[[_Take], _Take]:
    """Mark the method of a checker that takes facts of these kinds."""

    def marked(take: _Take) -> _Take:
        vars(take)["kinds"] = kinds
        return take

    return marked


class Checker:
    """One promise, checked from outside the members."""

    applies = True
    """False if the promise does not hold in this run."""

    def __init__(self, scene: Scene, history: History) -> None:
        self.scene = scene
        self.history = history

    @property
    def name(self) -> str:
        """The name of the promise in reports: `NoGap` is "no gap"."""
        return " ".join(re.findall(r"[A-Z][a-z]*", type(self).__name__)).lower()

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        methods: list[Any] = [getattr(self, name) for name in vars(type(self))]
        return {
            kind: method
            for method in methods
            if self.applies
            for kind in getattr(method, "kinds", ())
        }

    def is_unaware(self, member_id: str) -> bool:
        """Return whether a member was removed from the group and cannot know it yet.

        The next answer informs a member that revoked too slowly, or that a query with a copy of
        its checkpoint removed. A member whose session timed out notices by its own clock, a moment
        late if that is slow.
        """
        coordination, swarm = self.scene.coordination, self.scene.swarm
        if member_id in coordination.member_ids:
            return False
        if member_id in coordination.removed_for_slowness | self.scene.late.copied_member_ids:
            return True
        removed_s = self.scene.now - coordination.removed_at.get(member_id, -inf)
        return removed_s < 2 * swarm.skew * swarm.session_s

    def is_left_unassigned(self, key: TopicIdPartition) -> bool:
        """Return whether a generation of a classic group leaves out a partition, maybe for good.

        A cooperative member that has released a partition joins again, and the next generation
        assigns it. A static member that restarts in between returns to its generation instead.
        """
        coordination, swarm = self.scene.coordination, self.scene.swarm
        is_cooperative = swarm.classic_protocol is GroupProtocol.CLASSIC_COOPERATIVE
        may_return = is_cooperative and swarm.static and coordination.group.classic
        return bool(may_return) and key not in coordination.assigned

    def fail(self, text: str) -> NoReturn:
        """Raise BrokenInvariantError: the promise is broken."""
        raise BrokenInvariantError(self.name, text)
