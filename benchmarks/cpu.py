"""CPU seconds of processes, from /proc: what neighbours on a machine change least."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuSeconds:
    """What processes have used since they began.

    Args:
        own: Of a process itself.
        children: Of its living descendants, and of those that it has waited for.
    """

    own: float
    children: float

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.own - earlier.own, self.children - earlier.children)


def cpu_seconds(root_pid: int) -> CpuSeconds:
    """Return what a process and its descendants have used."""
    parents: dict[int, list[int]] = {}
    own: dict[int, int] = {}
    ended: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents.setdefault(int(fields[1]), []).append(pid)
            own[pid] = sum(map(int, fields[11:13]))
            ended[pid] = sum(map(int, fields[13:15]))
    children, waiting = ended.get(root_pid, 0), list(parents.get(root_pid, ()))
    while waiting:
        pid = waiting.pop()
        children += own[pid] + ended[pid]
        waiting += parents.get(pid, ())
    return CpuSeconds(own.get(root_pid, 0) / _CLOCK_TICKS, children / _CLOCK_TICKS)
