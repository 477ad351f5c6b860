"""Small disks of a run: a file system in memory for each, which becomes full and gets room again.

They are mounted in a mount namespace of the run's own: no other process sees them, and they are
gone with its last process, however that ends. A disk becomes full because its size becomes the
used one, so that writes get ENOSPC from the kernel; no memory is filled for that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 2 << 30
"""How large a disk is that has room; only the used part takes memory."""
FILLS: Final = 10
"""How often filling is tried while others still write."""
_CLONE_NEWNS: Final = 0x20000
_MS_REMOUNT: Final = 0x20
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
_MNT_DETACH: Final = 2
_FULL: Final = ("No space left on device", "database or disk is full")
"""What libraries say that have no errno: those of Rust, and SQLite."""


class DiskError(Exception):
    """A disk cannot be made, filled or emptied."""


def have_own_mounts() -> None:
    """Give this process, and all that it starts from now on, mounts that no other sees.

    Raises:
        DiskError: The process may not do that.
    """
    try:
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    except (OSError, AttributeError) as error:
        raise DiskError(
            f"a full disk needs the right to mount, on Linux ({error}): be root, or put"
            " `unshare --user --map-current-user --keep-caps --mount` before the command"
        ) from error


class SmallDisk:
    """A directory on a file system of its own.

    Args:
        directory: The directory, which is empty or not there; `have_own_mounts` comes first.

    Raises:
        DiskError: It cannot be mounted.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._mount(0, SIZE_BYTES)

    def fill(self, spare_bytes: int = 0) -> None:
        """Take all room but a rest.

        Args:
            spare_bytes: The rest, rounded up to pages.

        Raises:
            DiskError: Others write faster than it becomes full.
        """
        for attempt in range(1, FILLS + 1):
            found = os.statvfs(self._directory)
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                # A size of 0 would be no limit.
                self._mount(_MS_REMOUNT, max(found.f_frsize, used_bytes + spare_bytes))
            except DiskError:
                if attempt == FILLS:
                    raise
            else:
                return

    def make_room(self) -> None:
        """Give it its first size again."""
        self._mount(_MS_REMOUNT, SIZE_BYTES)

    def release(self) -> None:
        """Unmount it; its files are in the directory still."""
        copy = self._directory.with_name(f"{self._directory.name}.kept")
        shutil.copytree(self._directory, copy, symlinks=True)
        _call("umount2", os.fsencode(self._directory), _MNT_DETACH)
        self._directory.rmdir()
        copy.rename(self._directory)

    def _mount(self, flags: int, size_bytes: int) -> None:
        where, size = os.fsencode(self._directory), f"size={size_bytes}".encode("ascii")
        try:
            _call("mount", b"spark-groups", where, b"tmpfs", flags, size)
        except OSError as error:
            raise DiskError(f"{self._directory}: {error}") from error


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether a full disk is what an error, or one of its causes, tells of.

    Args:
        error: The error.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        if any(each in str(error) for each in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def _call(name: str, *args: object) -> None:
    """Call a function of the C library that returns 0.

    Raises:
        OSError: It fails.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
