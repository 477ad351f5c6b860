"""Compiled code of the fast reader and of Avro, cached once per machine.

The first process compiles for seconds; others wait for its lock and load the result. The lock only
saves time: numba replaces its files atomically, so a process that stops waiting compiles for
itself. Numba checks one source file of several for changes, so the directory name contains a digest
of all; numba itself checks the processor and versions.
"""

from __future__ import annotations

import contextlib
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
from spark_groups.runtime.cache_directory import cache_dir
from spark_groups.runtime.directories import make_private

RECORDS: Final = "spark_groups.records.arrow_batches"
"""The decoder of records."""
AVRO: Final = "spark_groups.formats.avro.interpreter"
"""The decoder of Avro's values."""
_PACKAGES: Final = ("spark_groups.records", "spark_groups.formats.avro")
_NEEDS: Final = {
    RECORDS: (
        ("numba", "zstandard"),
        "the fast reader requires numba and zstandard: install spark-groups[fast] or set reader to"
        " librdkafka",
    ),
    AVRO: (("numba",), "Avro requires numba: install spark-groups[avro]"),
}
"""The packages of each decoder, and why it is unavailable without them."""
LOCK_S: Final = 120.0
"""How long to wait for another process to compile."""
_ASK_AGAIN_S: Final = 0.05
_preparing: Final = threading.Lock()


class NotCompiledError(SparkGroupsError):
    """Compiled code is unavailable; the message states the reason."""


@cache
def prepare(decoder: str = RECORDS) -> None:
    """Compile a decoder or load it from the cache, so that it can be imported.

    Args:
        decoder: The name of its module, `RECORDS` or `AVRO`.

    Raises:
        NotCompiledError: A package is not installed, or no cache directory is writable.
    """
    packages, message = _NEEDS[decoder]
    if any(importlib.util.find_spec(each) is None for each in packages):
        raise NotCompiledError(message)
    with _preparing:
        directory = _directory()
        name = decoder.rpartition(".")[2]
        made, is_whole = directory / f"numba-{name}", directory / f"whole-{name}"
        if is_whole.exists() and _can_import(decoder, made):
            return
        with _locked(directory / f"lock-{name}"):
            _load(decoder, made)
            is_whole.touch()


def _can_import(decoder: str, directory: Path) -> bool:
    """Import a decoder; numba fails on truncated files, such as after a full disk."""
    try:
        _import_decoder(decoder, directory)
    except Exception:
        return False
    return True


def _load(decoder: str, directory: Path) -> None:
    """Import a decoder, after emptying the cache if it cannot be loaded."""
    if _can_import(decoder, directory):
        return
    shutil.rmtree(directory, ignore_errors=True)
    try:
        _import_decoder(decoder, directory)
    except Exception as error:
        raise NotCompiledError(
            f"{decoder} cannot be compiled in {directory}: {error}"
            + ("; set reader to librdkafka" if decoder == RECORDS else "")
        ) from error


def _import_decoder(decoder: str, directory: Path) -> None:
    """Import a decoder with a directory as numba's cache.

    With its default cache, numba raises at import if neither the installation nor a home directory
    is writable. Other numba code in the process keeps its own cache.
    """
    config = importlib.import_module("numba").config
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
    try:
        importlib.import_module(decoder)
    finally:
        config.CACHE_DIR = before


def _directory() -> Path:
    """Return a private writable directory for this version's code, else raise NotCompiledError."""
    name = f"compiled-{sources_digest()}"
    temporary = Path(tempfile.gettempdir(), f"spark-groups-{os.getuid()}-{name}")
    problems = []
    for directory in (cache_dir() / name, temporary):
        problem = _make_writable(directory)
        if problem is None:
            return directory
        problems.append(str(problem))
    raise NotCompiledError(f"no directory can hold compiled code: {'; '.join(problems)}")


def _make_writable(directory: Path) -> OSError | None:
    """Make a directory that only this user can write, because code is loaded from it."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        make_private(directory)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        return error
    return None


@cache
def sources_digest() -> str:
    """Return a digest of the decoders' source files."""
    digest = hashlib.sha256()
    files = [file for each in _PACKAGES for file in importlib.resources.files(each).iterdir()]
    for file in sorted(files, key=lambda each: each.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, or stop waiting after `LOCK_S`; it ends with the process."""
    deadline = time.monotonic() + LOCK_S
    with path.open("wb") as file:
        while _is_held_by_another(file) and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)
        yield


def _is_held_by_another(file: IO[bytes]) -> bool:
    """Try to take a lock; a file system without locks counts as success."""
    # Windows lacks it, and jobs import this module before they refuse Windows.
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
