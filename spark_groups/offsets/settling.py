"""How AvailableNow ends where partitions that are meant for it have not been released."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

BEYOND_SESSION_S: Final = 10.0
"""How long `wait` goes on after the session of a holder that is gone must have ended."""


class WhenUnsettled(Enum):
    """What AvailableNow does about partitions that do not come: `availableNowUnsettled`."""

    WARN = "warn"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Settling:
    """How long AvailableNow waits for partitions, and what it does then.

    Args:
        timeout_s: `availableNowSettleTimeout`, in seconds.
        when_unsettled: What happens after it.
    """

    timeout_s: float = 10.0
    when_unsettled: WhenUnsettled = WhenUnsettled.WARN

    def limit_s(self, session_timeout_ms: int) -> float:
        """Return for how many seconds partitions are waited for.

        Args:
            session_timeout_ms: The group's session time-out.
        """
        if self.when_unsettled is not WhenUnsettled.WAIT:
            return self.timeout_s
        return max(self.timeout_s, session_timeout_ms / 1000 + BEYOND_SESSION_S)


USUAL_SETTLING: Final = Settling()
