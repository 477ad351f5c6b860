"""Processes that tests start and watch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and only waits to be noticed does not."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return shown.returncode == 0 and not shown.stdout.startswith("Z")


def environment(**changed: str) -> dict[str, str]:
    """Return this process's environment with some variables changed."""
    return {**os.environ, **changed}


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    children: dict[int, list[int]] = {}
    for line in listing.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        of_one = children.get(waiting.pop(), [])
        found += of_one
        waiting += of_one
    return found
