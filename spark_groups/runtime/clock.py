"""The clock of everything that a broker measures too: it does not stand still with the machine."""

from __future__ import annotations

import time


def suspension_clock() -> float:
    """Return seconds of a clock that counts the time a machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
