"""Holds the acknowledgement of a revocation until whoever was told of it has let it go.

A rebalance listener in the query's driver may want to do something with partitions before they are
anybody else's. It is told when nothing reads them any more and what was finished is committed; the
acknowledgement then waits for its word, never longer than the budget of the revocation.
"""

from __future__ import annotations

from spark_groups.offsets.events import RevocationHeld
from spark_groups.types import NO_PARTITIONS, Assignment


class RevocationHold:
    """One revocation after another, each under a number of its own."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether anybody listens: nothing is held for nobody."""
        self._number = 0
        self._held = NO_PARTITIONS
        self._is_released = True

    def begin(self, revoking: Assignment, release_by: float, now: float) -> RevocationHeld | None:
        """Hold a revocation, unless nobody wants that or it is held already.

        Args:
            revoking: Everything that is to be given up; a larger set is another revocation.
            release_by: When the budget is over, in seconds.
            now: Seconds.
        """
        if not self.is_wanted or revoking == self._held:
            return None
        self._number += 1
        self._held, self._is_released = revoking, False
        return RevocationHeld(now, self._number, tuple(sorted(revoking)), release_by)

    def holds(self) -> bool:
        """Tell whether the acknowledgement has to wait."""
        return self.is_wanted and not self._is_released

    def release(self, number: int) -> None:
        """Let a revocation go; a number that is over means nothing.

        Args:
            number: That of its `RevocationHeld`.
        """
        if number == self._number:
            self._is_released = True

    def forget(self) -> None:
        """Take it that the revocation is over: acknowledged, or its partitions lost."""
        self._held, self._is_released = NO_PARTITIONS, True
