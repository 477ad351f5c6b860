"""Files in the directory of a Delta table that an attempt wrote, and no commit ever named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyarrow import fs

from spark_groups.spark.tables.delta_log import committed_paths

PREFIX: Final = "spark-groups-"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file of an attempt that no version of the table has.

    Args:
        name: Where it is, from the table's directory.
        size_bytes: How large.
        modified_s: When it was written, in seconds since 1970.
    """

    name: str
    size_bytes: int
    modified_s: float


def orphans_of(files: fs.FileSystem, *, older_than_s: float, now_s: float) -> list[Orphan]:
    """Return orphans, sorted by name.

    Args:
        files: The table's directory.
        older_than_s: Younger files may belong to a batch in progress.
        now_s: The time, in seconds since 1970.

    Raises:
        TableError: The log does not name all files.
    """
    # The log is read afterwards, so that a file committed meanwhile is seen there.
    staged = list(_staged(files))
    committed = committed_paths(files, PREFIX)
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
    """Delete orphans, and directories of attempts that have no file any more.

    Args:
        files: The table's directory.
        orphans: The files.
    """
    directories = set()
    for each in orphans:
        files.delete_file(each.name)
        directory, slash, _ = each.name.partition("/")
        if slash:
            directories.add(directory)
    for each_directory in directories:
        selector = fs.FileSelector(each_directory, recursive=True, allow_not_found=True)
        left = files.get_file_info(selector)
        is_there = files.get_file_info(each_directory).type is fs.FileType.Directory
        if is_there and all(each.type is fs.FileType.Directory for each in left):
            files.delete_dir(each_directory)


def _staged(files: fs.FileSystem) -> Iterable[fs.FileInfo]:
    for each in files.get_file_info(fs.FileSelector("")):
        if not each.base_name.startswith(PREFIX):
            continue
        if each.type is fs.FileType.File:
            yield each
        elif each.type is fs.FileType.Directory:
            inside = files.get_file_info(fs.FileSelector(each.path, recursive=True))
            yield from (found for found in inside if found.type is fs.FileType.File)


def _checksum_of(path: str) -> str:
    """Return where Hadoop keeps the checksum of a local file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"
