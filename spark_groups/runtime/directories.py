"""Directories of one user: private ones that processes meet in, and this package's cache."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import platformdirs

CACHE_DIR_VARIABLE: Final = "SPARK_GROUPS_CACHE_DIR"


def runtime_directory(name: str | None) -> Path | None:
    """Return the directory that the system keeps for what this user's processes run with.

    Args:
        name: What `XDG_RUNTIME_DIR` says, if anything.

    Returns:
        None unless it is this user's own directory and others have no access to it.
    """
    if not name:
        return None
    directory = Path(name)
    try:
        found = directory.stat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return directory if is_own and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) else None


def is_private(directory: Path) -> bool:
    """Tell whether there is such a directory of this user's own, and no link in its place."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def make_private(directory: Path) -> None:
    """Make a directory that only this user can read and write; it may be there already.

    Raises:
        OSError: It cannot be made, or something of somebody else's is in its place.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not is_private(directory):
        raise PermissionError(f"{directory} is not a directory of this user: remove it")
    directory.chmod(0o700)


def cache_dir() -> Path:
    """Return the user's cache directory of this package; SPARK_GROUPS_CACHE_DIR overrides it."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    return Path(chosen).absolute() if chosen else platformdirs.user_cache_path("spark-groups")
