"""How long a static member waits for its `group.instance.id`, and when it reports the wait."""

from __future__ import annotations

from typing import Final

REPORT_AGAIN_S: Final = 10.0
SESSIONS_WAITED: Final = 2
EXPIRY_S: Final = 1.0
"""How long after a session timeout the coordinator may take to remove the member."""


class InstanceWait:
    """The wait for an instance id that another member still holds (UNRELEASED_INSTANCE_ID).

    A static member that died holds its instance id until its session expires. Its successor retries
    the join for two session timeouts, and reports the wait every ten seconds. One session timeout
    is too short, because the dead member's session restarts when the coordinator moves or a join
    arrives late.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._report_at = 0.0

    def deadline(self, session_timeout_ms: int) -> float | None:
        """Return when the session of a dead holder must have expired, None without a wait."""
        if self.since is None:
            return None
        return self.since + SESSIONS_WAITED * session_timeout_ms / 1000 + EXPIRY_S

    def refused(self, now: float) -> bool:
        """Note a refused join; return True if it should be reported."""
        if self.since is None:
            self.since = self._report_at = now
        if now < self._report_at:
            return False
        self._report_at += REPORT_AGAIN_S
        return True

    def reset(self) -> None:
        """Forget the wait: the next refused join begins a new one."""
        self.since = None
