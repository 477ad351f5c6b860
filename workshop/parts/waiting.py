"""Waiting on conditions, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SOON_S = 60.0
"""Within what ends at once, on any machine; what would wait in vain waits for `LONG_S`."""
LONG_S = 300.0
"""The deadline of what comes: no machine is that slow, and no test that passes waits for it."""


def wait_until(condition: Callable[[], T], timeout_s: float = 120.0, what: str = "") -> T:
    """Return the condition's value as soon as it is true.

    Args:
        condition: Called until it returns something true.
        timeout_s: When to give up: late, as a machine may be slow and most do not wait.
        what: Names the awaited condition in the failure.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what or condition}")
        time.sleep(0.02)
