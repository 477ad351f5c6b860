"""How long AvailableNow waits for partitions: an option, which a load() checks without a group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

BEYOND_SESSION_S: Final = 10.0
"""How long `wait` waits after the session timeout of a dead owner."""


class WhenUnsettled(Enum):
    """`availableNowUnsettled`."""

    WARN = "warn"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class AvailableNowWait:
    """How long AvailableNow waits for partitions, and what it does then.

    Args:
        timeout_s: `availableNowSettleTimeout`, in seconds.
        when_unsettled: What happens after that.
    """

    timeout_s: float = 10.0
    when_unsettled: WhenUnsettled = WhenUnsettled.WARN

    def limit_s(self, session_timeout_ms: int) -> float:
        """Return how many seconds to wait for partitions."""
        if self.when_unsettled is not WhenUnsettled.WAIT:
            return self.timeout_s
        return max(self.timeout_s, session_timeout_ms / 1000 + BEYOND_SESSION_S)


USUAL_WAIT: Final = AvailableNowWait()
