"""A process that does not outlive the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_ORPHAN: Final = 5
"""The exit code of a process whose run was gone before the kernel could be asked."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone, even while it stands still.

    Only Linux can do that; elsewhere a run that is killed by SIGKILL leaves its members behind.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The kernel does not tell of a parent that ended before it was asked to.
    run = multiprocessing.parent_process()
    if run is not None and not run.is_alive():
        os._exit(_ORPHAN)
