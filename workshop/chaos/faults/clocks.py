"""Wall clocks of single processes that jump, by libfaketime; the machine's own clock stays.

Only the time of day jumps, as when an operator or NTP sets it: the monotonic clocks, sleeps and
waits continue, and files keep the times that the kernel gives them. What the run notes has the true
time.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Final, SupportsIndex

PACKAGE: Final = "libfaketime"
PLACES: Final = (
    "/usr/lib/*-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
)
"""Where Debian and others install the library for programs with threads."""
_FILE: Final = "FAKETIME_TIMESTAMP_FILE"
_SETTING: Final = {
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
    # A process looks once a second for a jump.
    "FAKETIME_CACHE_DURATION": "1",
}


class ClockError(Exception):
    """Clocks cannot be made to jump."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _from_libc() -> Callable[[], float]:
    # A preloaded library hides the name from all but those that ask the C library itself.
    read = ctypes.CDLL("libc.so.6").clock_gettime

    def wall_s() -> float:
        found = _Timespec()
        read(time.CLOCK_REALTIME, ctypes.byref(found))
        return float(found.seconds + found.nanoseconds / 1e9)

    return wall_s


wall_s: Final[Callable[[], float]] = _from_libc() if _FILE in os.environ else time.time
"""The true time of day in seconds, also where this process's clock has jumped."""


def _sleep(seconds: SupportsIndex | float) -> None:
    select.select([], [], [], float(seconds))


if _FILE in os.environ:
    # libfaketime 0.9.10 refuses the absolute times that this function passes to the kernel.
    time.sleep = _sleep


def start_fork_server() -> None:
    """Start the process that forks members, so that their clocks can jump.

    Raises:
        ClockError: There is no libfaketime.
    """
    with _preloaded(_library()):
        forkserver.ensure_running()


def follow(path: Path) -> None:
    """Let this process's clock follow a file, if the fork server was started for that.

    Args:
        path: The file, as `set_clock` writes it.
    """
    if _FILE not in os.environ:
        return
    os.environ[_FILE] = str(path)


def set_clock(path: Path, ahead_s: float) -> None:
    """Have the clock of a process jump.

    Args:
        path: The file that it follows.
        ahead_s: How far it is ahead of the machine's clock from now on, in seconds.
    """
    new = path.with_suffix(".new")
    new.write_text(f"{ahead_s:+.3f}\n", encoding="ascii")
    new.replace(path)


def _library() -> Path:
    for pattern in PLACES:
        for path in Path("/").glob(pattern.lstrip("/")):
            return path
    raise ClockError(f"clocks jump by libfaketime, which is missing: apt-get install {PACKAGE}")


@contextmanager
def _preloaded(library: Path) -> Iterator[None]:
    """Have the processes preload a library that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(_SETTING)
    # Nothing is written there: until a process follows a file, its clock is the machine's.
    os.environ |= {"LD_PRELOAD": str(library), _FILE: os.devnull}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
