"""Clocks of members: each starts anywhere, and runs a little fast or slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROUNDING_S: Final = 1e-6
"""A wake-up comes so much late where a clock is not exact: never a moment too early."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A member's clock.

    Args:
        offset_s: What it shows when the run begins.
        rate: How many of its seconds pass in one of the run's.
    """

    offset_s: float = 0.0
    rate: float = 1.0

    def local(self, now: float) -> float:
        """Return what the clock shows at an instant of the run."""
        return self.offset_s + self.rate * now

    def instant(self, local: float) -> float:
        """Return the instant of the run at which the clock shows something."""
        if self.rate == 1.0 and self.offset_s == 0.0:
            return local
        return (local - self.offset_s) / self.rate + ROUNDING_S


EXACT: Final = Clock()
