"""CPU seconds of processes, from control groups: ended processes count as well.

Times in /proc are lost with a process without a waiting parent. A control group (version 2) keeps
them; to make one takes root, or `systemd-run --user --scope -p Delegate=yes`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from workshop.parts.processes import descendants

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_OF_BUSY = (0, 1, 2, 5, 6, 7)
"""In /proc/stat: user, nice, system, interrupts, and what other machines took of this one."""


class CpuAccountError(Exception):
    """CPU seconds cannot be counted here."""


@dataclass(frozen=True)
class CpuSeconds:
    """What processes have used since they are counted.

    Args:
        own: Of a process itself.
        children: Of all that it has started, alive or not.
    """

    own: float
    children: float

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.own - earlier.own, self.children - earlier.children)

    @property
    def total(self) -> float:
        """Of all of them."""
        return self.own + self.children


class CpuAccount:
    """Counts a process and everything that it starts, from now on.

    Args:
        root_pid: The process; what it has started already is counted as well.

    Raises:
        CpuAccountError: No control group can be made.
    """

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._home = _control_group()
        self._group = self._home / f"spark-groups-{root_pid}"
        try:
            self._group.mkdir()
            for pid in (root_pid, *descendants(root_pid)):
                _move(pid, self._group)
        except OSError as error:
            raise CpuAccountError(
                f"no control group can be made in {self._home} ({error.strerror}): run it as root,"
                " or by systemd-run --user --scope -p Delegate=yes"
            ) from error
        self._own_before_s = _own_s(root_pid)

    def used(self) -> CpuSeconds:
        """Return the CPU seconds used since it began."""
        own_s = _own_s(self._root_pid) - self._own_before_s
        stat = (self._group / "cpu.stat").read_text(encoding="ascii").split()
        total_s = int(stat[stat.index("usage_usec") + 1]) / 1e6
        # The process's own time is counted in ticks.
        return CpuSeconds(own_s, max(0.0, total_s - own_s))

    def close(self) -> None:
        """Give back what still runs to the control group that it came from."""
        for pid in (self._group / "cgroup.procs").read_text(encoding="ascii").split():
            _move(int(pid), self._home)
        self._group.rmdir()


@dataclass(frozen=True)
class MachineTime:
    """What all processes of the machine have used at a moment.

    Args:
        at_s: The moment.
        busy_s: CPU seconds.
    """

    at_s: float
    busy_s: float

    @classmethod
    def now(cls) -> MachineTime:
        """Read it."""
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        busy = sum(int(fields[each]) for each in _OF_BUSY)
        return cls(time.monotonic(), busy / _CLOCK_TICKS)

    def company_cores(self, earlier: MachineTime, used_s: float) -> float:
        """Return how many processors others have used since an earlier moment, on average.

        Args:
            earlier: That moment.
            used_s: CPU seconds of the measured processes, since then.
        """
        passed_s = self.at_s - earlier.at_s
        return (self.busy_s - earlier.busy_s - used_s) / passed_s


def _own_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _CLOCK_TICKS


def _move(pid: int, group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
    except ProcessLookupError:
        # It has ended meanwhile.
        return


def _control_group() -> Path:
    """Return the directory of this process's own control group of version 2."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    root = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    paths = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = next((path for number, _, path in paths if number == "0"), None)
    if root is None or own is None:
        raise CpuAccountError("this system has no control groups of version 2")
    return root / own.lstrip("/")
