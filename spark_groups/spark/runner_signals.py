"""How a runner ends: by its JVM's SIGTERM, by its JVM's death, or because Spark was stopped.

Spark ends a runner with two SIGTERM a millisecond apart, and never calls `stop()` before that. A
SIGTERM from anybody else (a service manager that signals a whole group), and SIGINT, are left to
the JVM, so that the batch can end first. A SparkContext that is stopped leaves its queries'
runners alive (measured), but it deletes the directory of its files: that is how it is noticed.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 0.25


class RunnerEnd:
    """Leaves once, whatever ends the runner, and then ends the process.

    Args:
        leave: What to do before the process ends; must end by itself.
        files_directory: A directory that lives as long as the SparkContext, if one is known.
        exit_process: Ends the process.
    """

    def __init__(
        self,
        leave: Callable[[], None],
        *,
        files_directory: Path | None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._leave = leave
        self._files_directory = files_directory
        self._exit_process = exit_process
        self._jvm_pid = os.getppid()
        self._ending = threading.Lock()

    def watch(self) -> None:
        """Begin to watch; has to be called in the main thread, before other threads are made."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        if hasattr(signal, "sigwaitinfo"):
            # Blocked here and in every thread made from now on, so that its sender can be read.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._spawn(self._read_sigterms, "sigterm")
        self._spawn(self._watch_spark, "watch")

    def end(self, reason: str) -> None:
        """Leave and end the process; only the first call does anything."""
        if not self._ending.acquire(blocking=False):
            return
        logger.info("the runner ends: %s", reason)
        try:
            self._leave()
        except Exception:
            logger.exception("the member could not leave its group cleanly")
        finally:
            self._exit_process(0)

    def _on_sigterm(self, *_: object) -> None:
        self._spawn(lambda: self.end("SIGTERM"), "end")

    def _read_sigterms(self) -> None:
        while True:
            sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
            if sender == self._jvm_pid or os.getppid() != self._jvm_pid:
                self._spawn(lambda: self.end("the JVM stopped the query"), "end")
            else:
                logger.info("SIGTERM from process %d is left to the JVM", sender)

    def _watch_spark(self) -> None:
        pause = threading.Event()
        while not pause.wait(WATCH_EVERY_S):
            if os.getppid() != self._jvm_pid:
                self.end("the JVM is gone")
            elif self._files_directory is not None and not self._files_directory.exists():
                self.end("the SparkContext was stopped")

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=f"kafka-group-{name}", daemon=True).start()
