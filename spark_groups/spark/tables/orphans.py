"""Files of crashed attempts: in the directory of a table, but in none of its versions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from pyarrow import fs

from spark_groups.spark.tables.table import PREFIX, Orphan


def orphans_of(
    files: fs.FileSystem,
    committed_paths: Callable[[], Collection[str]],
    *,
    older_than_s: float,
    now_s: float,
) -> list[Orphan]:
    """Return orphans, sorted by name.

    Args:
        files: The directory of the table's files.
        committed_paths: Returns the files of all versions of the table, as paths in `files`.
        older_than_s: Younger files may belong to a batch in progress.
        now_s: The time, in seconds since 1970.
    """
    # The versions are read after the directory, so a file that is committed meanwhile is in one.
    staged = list(_staged(files))
    committed = committed_paths()
    checksums = {_checksum_of(each) for each in committed}
    found = []
    for each in staged:
        if each.path in committed or each.path in checksums or each.mtime is None:
            continue
        modified_s = each.mtime.timestamp()
        if modified_s <= now_s - older_than_s:
            found.append(Orphan(each.path, each.size, modified_s))
    return sorted(found, key=lambda each: each.name)


def remove_files(files: fs.FileSystem, orphans: Iterable[Orphan]) -> None:
    """Delete orphans, and directories of attempts that are empty then.

    Args:
        files: The table's directory.
        orphans: The files.
    """
    directories = set()
    for orphan in orphans:
        if _is_linked(files, orphan.name):
            # It became one since the look.
            continue
        files.delete_file(orphan.name)
        directory, slash, _ = orphan.name.partition("/")
        if slash:
            directories.add(directory)
    for each_directory in directories:
        _remove_if_empty(files, each_directory)


def _remove_if_empty(files: fs.FileSystem, directory: str) -> None:
    if _is_linked(files, directory):
        return
    if (local := _local(files)) is not None:
        for top, _, _ in os.walk(local / directory, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(top)
    elif files.get_file_info(directory).type is fs.FileType.Directory:
        left = files.get_file_info(fs.FileSelector(directory, recursive=True))
        if all(each.type is fs.FileType.Directory for each in left):
            files.delete_dir(directory)


def _staged(files: fs.FileSystem) -> Iterable[fs.FileInfo]:
    for each in files.get_file_info(fs.FileSelector("", allow_not_found=True)):
        if not each.base_name.startswith(PREFIX) or _is_linked(files, each.path):
            continue
        if each.type is fs.FileType.File:
            yield each
        elif each.type is fs.FileType.Directory:
            yield from (one for one in _inside(files, each.path) if one.type is fs.FileType.File)


def _inside(files: fs.FileSystem, directory: str) -> list[fs.FileInfo]:
    """Return files and directories below a directory, but not behind a link."""
    local = _local(files)
    if local is None:
        return list(files.get_file_info(fs.FileSelector(directory, recursive=True)))
    paths = [
        (Path(top) / name).relative_to(local).as_posix()
        for top, _, names in os.walk(local / directory)
        for name in names
    ]
    return list(files.get_file_info([path for path in paths if not _is_linked(files, path)]))


def _is_linked(files: fs.FileSystem, path: str) -> bool:
    """Return whether a link of a local file system leads to a path: it may lead out of the table.

    Args:
        files: The table's directory, which may be reached through links itself.
        path: The path in it.
    """
    local = _local(files)
    places = () if local is None else (local / path, *(local / path).parents)
    return any(os.path.islink(place) for place in places if local in place.parents)


def _local(files: fs.FileSystem) -> Path | None:
    """Return the directory of a file system; None: it is not on this machine."""
    is_part = isinstance(files, fs.SubTreeFileSystem)
    is_local = is_part and isinstance(files.base_fs, fs.LocalFileSystem)
    return Path(files.base_path) if is_local else None


def _checksum_of(path: str) -> str:
    """Return the path of the checksum file that Hadoop writes for a local file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"
