"""A process that does not outlive the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone, even while it stands still.

    Only Linux can do that; elsewhere a run that is killed by SIGKILL leaves its members behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
