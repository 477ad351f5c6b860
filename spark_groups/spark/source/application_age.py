"""How long the application has needed from the start of its JVM: what a restart takes at least."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from spark_groups.runtime.clock import suspension_clock

STARTS_WITHIN_S: Final = 900.0
"""A query that begins later was not part of its application's start, and tells nothing of it."""


def restart_s(jvm_pid: int, *, processes: Path = Path("/proc")) -> float | None:
    """Return how many seconds the application took to begin this query.

    Args:
        jvm_pid: The JVM's process.
        processes: Where the system tells of processes.

    Returns:
        None where the system does not tell, and where the JVM is too old for it to be its start.
    """
    try:
        told = (processes / str(jvm_pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The name may have spaces and parentheses; the start is the 20th field behind it.
        started_ticks = int(told.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    age_s = suspension_clock() - started_ticks / os.sysconf("SC_CLK_TCK")
    return age_s if 0 <= age_s <= STARTS_WITHIN_S else None
