"""SIGTERM and SIGHUP interrupt a program like Ctrl-C, so that it ends the processes it started."""

from __future__ import annotations

import signal


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGTERM, and when the terminal closes.

    A signal that is ignored stays ignored: `nohup` starts a program with SIGHUP ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
