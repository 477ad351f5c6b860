"""The wait for an instance id that another member still holds (UNRELEASED_INSTANCE_ID).

A static member that died without a word holds its instance id until its session is over. Its
successor joins again and again for two sessions, and says so: at once, then every ten seconds. The
session of a dead member begins again where the coordinator moves, or where a join arrives late.
"""

from __future__ import annotations

from typing import Final

SAY_AGAIN_S: Final = 10.0
SESSIONS_WAITED: Final = 2
EXPIRY_S: Final = 1.0
"""How much later than the session time-out a coordinator may find a member expired."""


class InstanceWait:
    """Follows one wait after another against the session time-out."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._say_at = 0.0

    @property
    def is_waiting(self) -> bool:
        return self._since is not None

    def began_at(self) -> float | None:
        """Return since when it waits, None if it does not."""
        return self._since

    def deadline(self, session_timeout_ms: int) -> float | None:
        """Return when a holder that is dead must have been found out, None without a wait.

        Args:
            session_timeout_ms: Of the group, as far as it is known by now.
        """
        if self._since is None:
            return None
        return self._since + SESSIONS_WAITED * session_timeout_ms / 1000 + EXPIRY_S

    def refused(self, now: float) -> bool:
        """Note that the instance id is not released yet; True where that is to be said."""
        if self._since is None:
            self._since = self._say_at = now
        if now < self._say_at:
            return False
        self._say_at += SAY_AGAIN_S
        return True

    def ended(self) -> None:
        """Note that the wait is over."""
        self._since = None
