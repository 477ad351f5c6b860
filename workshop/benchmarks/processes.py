"""Memory, threads, descriptors and connections of a Spark application's processes (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.spark.control.shutdown import RUNNER_MODULE
from workshop.parts.processes import descendants

JVM: Final = "driver, JVM"
PYTHON: Final = "driver, Python"
RUNNER: Final = "runner of the query"
WORKERS: Final = "Python workers"
_LISTENING: Final = "0A"


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes use.

    Args:
        memory_mb: Resident memory, in MB of 2^20 bytes.
        threads: Threads.
        descriptors: Open file descriptors.
        connections: Sockets of TCP that do not listen.
    """

    memory_mb: float
    threads: int
    descriptors: int
    connections: int

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.memory_mb + other.memory_mb,
            self.threads + other.threads,
            self.descriptors + other.descriptors,
            self.connections + other.connections,
        )


def usage_of(pid: int) -> Usage | None:
    """Return the usage of a process; None: it has ended."""
    try:
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        )
        open_files = [_target(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        tcp = _sockets(f"/proc/{pid}/net/{name}" for name in ("tcp", "tcp6"))
    except (OSError, ValueError):
        return None
    if "VmRSS" not in status:
        # It has ended, and its parent has not noticed.
        return None
    return Usage(
        int(status["VmRSS"].split()[0]) / 1024,
        int(status["Threads"]),
        len(open_files),
        sum(open_file in tcp for open_file in open_files),
    )


def usage_by_role(root_pid: int) -> dict[str, Usage]:
    """Return the usage of a Spark driver and of its children by role.

    Args:
        root_pid: The driver's Python process, which started the JVM.
    """
    found: dict[str, Usage] = {}
    for pid in (root_pid, *descendants(root_pid)):
        used = usage_of(pid)
        if used is not None:
            role = PYTHON if pid == root_pid else role_of(pid)
            found[role] = found[role] + used if role in found else used
    return found


def role_of(pid: int) -> str:
    """Return the role of a process that the driver's Python has started, directly or not."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return WORKERS
    if Path(command.split("\0", 1)[0]).name == "java":
        return JVM
    return RUNNER if RUNNER_MODULE in command else WORKERS


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        # It was closed since the directory was listed.
        return ""


def _sockets(paths: Iterable[str]) -> set[str]:
    """Return the sockets of TCP that do not listen, as /proc/PID/fd names them."""
    found = set()
    for path in paths:
        for line in Path(path).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] != _LISTENING:
                found.add(f"socket:[{fields[9]}]")
    return found
