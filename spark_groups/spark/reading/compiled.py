"""The fast reader's compiled code: made once on a machine, and kept where it can be written.

Whoever comes first compiles, which takes seconds; others on the machine wait for its lock and load
what it made. Once that is whole nobody waits: workers that start together load it together. The
lock is only for time: numba replaces its files whole, so that a process which does not wait
compiles for itself. Numba looks for changes in one source file of several, so the directory's name
says what all of them are; the processor and the versions it knows itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import importlib.resources
import importlib.util
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Final

from spark_groups.errors import SparkGroupsError
from spark_groups.runtime.directories import cache_dir, make_private

PACKAGE: Final = "spark_groups.records"
_DECODER: Final = f"{PACKAGE}.decoder"
LOCK_S: Final = 120.0
"""How long another process may compile before this one does it for itself."""
_ASK_AGAIN_S: Final = 0.05
_preparing: Final = threading.Lock()


class NotCompiledError(SparkGroupsError):
    """The fast reader cannot be used here; the message says why."""


def is_installed() -> bool:
    """Tell whether there is what the fast reader is compiled by: the extra `fast`."""
    return importlib.util.find_spec("numba") is not None


@cache
def prepare() -> None:
    """Compile the decoder of records, or load what was compiled: then its package can be imported.

    Raises:
        NotCompiledError: numba is not installed, or there is nowhere to keep what it makes.
    """
    if not is_installed():
        raise NotCompiledError(
            "the fast reader needs numba: install spark-groups[fast], or set the option reader to"
            " librdkafka"
        )
    with _preparing:
        directory = _directory()
        made, is_whole = directory / "numba", directory / "whole"
        if is_whole.exists() and _can_import(made):
            return
        with _locked(directory / "lock"):
            _load(made)
            is_whole.touch()


def _can_import(directory: Path) -> bool:
    """Import the decoder, unless it cannot be done with what is in a directory.

    Numba does not survive files that were cut off, on a disk that was full.
    """
    try:
        _import_decoder(directory)
    except Exception:
        return False
    return True


def _load(directory: Path) -> None:
    """Import the decoder; begin with an empty directory if it cannot be done with what is there."""
    if _can_import(directory):
        return
    shutil.rmtree(directory, ignore_errors=True)
    try:
        _import_decoder(directory)
    except Exception as error:
        raise NotCompiledError(
            f"the fast reader cannot be compiled in {directory}: {error}; set the option reader to"
            " librdkafka"
        ) from error


def _import_decoder(directory: Path) -> None:
    """Import the decoder while numba keeps what it compiles in a directory.

    It would raise at the import where neither the installation nor a home can be written. Other
    code of the process has its own place, so the setting is put back.
    """
    config = importlib.import_module("numba").config
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
    try:
        importlib.import_module(_DECODER)
    finally:
        config.CACHE_DIR = before


def _directory() -> Path:
    """Return a private directory for this version's code, which can be written.

    Raises:
        NotCompiledError: There is none.
    """
    name = f"compiled-{sources_digest()}"
    temporary = Path(tempfile.gettempdir(), f"spark-groups-{os.getuid()}-{name}")
    problems = []
    for directory in (cache_dir() / name, temporary):
        problem = _make_writable(directory)
        if problem is None:
            return directory
        problems.append(str(problem))
    raise NotCompiledError(f"compiled code can be kept nowhere: {'; '.join(problems)}")


def _make_writable(directory: Path) -> OSError | None:
    """Make a directory that only this user can write, as code is loaded from it; or say why not."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        make_private(directory)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        return error
    return None


@cache
def sources_digest() -> str:
    """Return what changes with any source file of the decoder."""
    digest = hashlib.sha256()
    files = importlib.resources.files(PACKAGE).iterdir()
    for file in sorted(files, key=lambda each: each.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, or give up on it when it takes too long; it ends with the process."""
    deadline = time.monotonic() + LOCK_S
    with path.open("wb") as file:
        while _is_held_by_another(file) and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)
        yield


def _is_held_by_another(file: IO[bytes]) -> bool:
    """Take a lock, unless another process has it, or the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
