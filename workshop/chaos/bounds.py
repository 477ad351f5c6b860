"""The bounds of a run: how long it may take, and the directory of its files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console


class ChaosError(Exception):
    """The run failed to start: it has no result about the promises."""


@contextlib.contextmanager
def hard_end(timeout_s: float) -> Iterator[None]:
    """End the run with an error when everything takes too long.

    Args:
        timeout_s: How many seconds it may take.

    Raises:
        ChaosError: It took longer.
    """
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if is_late.is_set():
            raise ChaosError(f"it did not end within {timeout_s:g} s") from None
        raise
    finally:
        timer.cancel()


@contextlib.contextmanager
def run_directory(console: Console, kept: Path | None) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield an empty directory and what keeps it; without that, a temporary one is deleted.

    Args:
        console: Where the kept directory is shown.
        kept: The directory that is kept in any case; None: there is none.

    Raises:
        ChaosError: It is not empty.
    """
    if kept is not None:
        if kept.exists() and any(kept.iterdir()):
            raise ChaosError(f"{kept} is not empty: name a new directory")
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.absolute(), lambda: None
        return
    path = Path(tempfile.mkdtemp(prefix="chaos-"))
    is_kept: list[bool] = []

    def keep() -> None:
        is_kept.append(True)
        console.print(f"notes, logs and sinks are kept in {path}", markup=False)

    try:
        yield path, keep
    except Exception:
        keep()
        raise
    finally:
        if not is_kept:
            shutil.rmtree(path, ignore_errors=True)
