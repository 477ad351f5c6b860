"""Commands of the package as processes of their own, with their time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Timed:
    """A command that ended with status 0.

    Args:
        took_s: From its start to its end.
        memory_mb: Its greatest resident memory.
        output_bytes: The length of its standard output.
    """

    took_s: float
    memory_mb: float
    output_bytes: int


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a command of the package."""
    return [str(Path(sys.executable).with_name("spark-groups")), *arguments]


def run_timed(arguments: Sequence[str]) -> Timed:
    """Run a command of the package, and return what it took."""
    memory_kb = 0
    with TemporaryFile() as output:
        began_at = time.monotonic()
        with subprocess.Popen(
            command_line(arguments), stdin=subprocess.DEVNULL, stdout=output
        ) as process:
            # ru_maxrss would be that of this process, if this process is the larger one.
            while process.poll() is None:
                memory_kb = max(memory_kb, _peak_kb(process.pid))
                time.sleep(LOOK_S)
        took_s = time.monotonic() - began_at
        if process.returncode:
            raise RuntimeError(f"{arguments} ended with status {process.returncode}")
        return Timed(took_s, memory_kb / 1024, output.seek(0, os.SEEK_END))


def _peak_kb(pid: int) -> int:
    """Return the greatest resident memory of a process so far; 0: it has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) if found else 0
