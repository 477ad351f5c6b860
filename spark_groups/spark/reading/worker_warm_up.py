"""Warms Python workers up for the first batch of a run, in tasks that read nothing.

Such a task leaves a worker that has imported its reader, loaded compiled code, and opened and
secured its connections; Spark gives the same workers to the next batch. A worker serves one task
after another, so each task keeps its slot until all tasks have begun.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from spark_groups.errors import SparkGroupsError
from spark_groups.runtime.directories import make_private, user_directory

_log = logging.getLogger(__name__)

HOLD_S: Final = 2.0
"""How long tasks wait for others after the first has begun: those of other hosts are not seen."""
_LOOK_EVERY_S: Final = 0.01
_LEFTOVER_S: Final = 10.0
"""The age of a file that no task of its warm-up looks at any more."""
_BEGAN: Final = struct.Struct("=d")


def warm_slot(warm: Callable[[], None], *, run: str, tasks: int) -> None:
    """Warm this worker up; a failure is logged, and the first batch will meet it again.

    Args:
        warm: Imports the reader and opens its connections.
        run: Identifies the warm-up.
        tasks: The number of its tasks.
    """
    try:
        with slot_held(run, tasks):
            warm()
    except Exception as error:
        reason = str(error) if isinstance(error, SparkGroupsError) else repr(error)
        _log.warning("this worker is not warm for the first batch: %s", reason)


@contextmanager
def slot_held(run: str, tasks: int, directory: Path | None = None) -> Iterator[None]:
    """Let a task end only when all tasks of its warm-up have begun, or `HOLD_S` after the first.

    Each task appends the time to one file of this host, which the last to begin makes full.

    Args:
        directory: A private directory; None: one of this user.
    """
    if tasks == 1:
        yield
        return
    directory = directory or user_directory("spark-groups-warm-up")
    path = directory / hashlib.sha256(run.encode()).hexdigest()[:32]
    try:
        make_private(directory)
        _sweep(directory)
        file = path.open("a+b", buffering=0)
    except OSError as error:
        _log.warning(
            "tasks of the warm-up may share a worker, because %s is unusable: %r", directory, error
        )
        yield
        return
    with file:
        file.write(_BEGAN.pack(time.time()))
        try:
            yield
        finally:
            if _await_all(file, tasks):
                # Tasks that wait have it open.
                path.unlink(missing_ok=True)


def _await_all(file: IO[bytes], tasks: int) -> bool:
    (first_at,) = _BEGAN.unpack(os.pread(file.fileno(), _BEGAN.size, 0))
    left_s = min(HOLD_S, first_at + HOLD_S - time.time())
    deadline = time.monotonic() + left_s
    while os.fstat(file.fileno()).st_size < tasks * _BEGAN.size:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def _sweep(directory: Path) -> None:
    """Remove files of warm-ups whose tasks ran on several hosts, or were killed."""
    for path in directory.iterdir():
        # Another task may remove it first.
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()
