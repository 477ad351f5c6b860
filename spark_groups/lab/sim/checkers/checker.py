"""What a checker is: it listens to facts and objects."""

from __future__ import annotations

import re
from math import inf
from typing import NoReturn

from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene


class BrokenInvariantError(AssertionError):
    """A promise was broken.

    Args:
        checker: Name of the checker that says so.
        text: What happened.
    """

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text


class Checker:
    """One promise, watched from outside.

    Args:
        scene: The run.
        history: What happened so far.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        self.scene = scene
        self.history = history

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        raise NotImplementedError

    def is_unaware(self, member_id: str) -> bool:
        """Tell whether a member is out of the group and cannot know it yet.

        One that took too long to revoke is told by the next answer; one whose session is over sees
        it by its own clock, a moment late if that is slow.
        """
        coordination, swarm = self.scene.coordination, self.scene.swarm
        if member_id in coordination.group.members:
            return False
        if member_id in coordination.removed_for_slowness:
            return True
        removed_s = self.scene.now - coordination.removed_at.get(member_id, -inf)
        return removed_s < 2 * swarm.skew * swarm.session_s

    def fail(self, text: str) -> NoReturn:
        """Say that the promise is broken.

        Raises:
            BrokenInvariantError: Always.
        """
        words = re.findall(r"[A-Z][a-z]*", type(self).__name__)
        raise BrokenInvariantError(" ".join(words).lower(), text)
