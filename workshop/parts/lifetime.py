"""A process that does not outlive the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PARENT_PID: Final = "SPARK_GROUPS_CHAOS_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1
_ORPHAN: Final = 5
"""The exit code of a process whose parent was gone before the kernel could be asked."""


def be_parent() -> None:
    """Name this process as the parent of those that it starts from now on: they end with it."""
    os.environ[_PARENT_PID] = str(os.getpid())


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel kill this process when its parent is gone, even while it stands still.

    The parent has called `be_parent` before. Only Linux can do that; elsewhere a run that is
    killed by SIGKILL leaves its members behind.

    Args:
        number: Another signal, for a process that has to end others first.
    """
    end_with(int(os.environ[_PARENT_PID]), number)


def end_with(parent_pid: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent is gone.

    Args:
        parent_pid: The parent.
        number: The signal.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    # The kernel does not report a parent that ended before the request. Whether the run
    # looks alive does not show it either: its threads end one by one, with its pipes still open.
    if os.getppid() != parent_pid:
        os._exit(_ORPHAN)
