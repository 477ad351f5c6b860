"""Private directories of one user, for sockets and locks."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def runtime_directory(name: str | None) -> Path | None:
    """Return the user's runtime directory.

    Args:
        name: The value of `XDG_RUNTIME_DIR`.

    Returns:
        None unless it is a directory of this user to which others have no access.
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


def user_directory(name: str) -> Path:
    """Return the directory of a name for this user's short-lived files; it may not exist."""
    runtime = runtime_directory(os.environ.get("XDG_RUNTIME_DIR"))
    return runtime / name if runtime else Path(tempfile.gettempdir(), f"{name}-{os.getuid()}")


def is_private(directory: Path) -> bool:
    """Return whether this is a directory of this user, not a link."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def make_private(directory: Path) -> None:
    """Create a directory that only this user can read and write, if it is missing.

    Raises:
        OSError: It cannot be created, or its path is taken by another user.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not is_private(directory):
        raise PermissionError(f"{directory} is not a directory of this user: remove it")
    directory.chmod(0o700)
