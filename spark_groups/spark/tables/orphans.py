"""Files of crashed attempts: in the directory of a table, but in none of its versions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

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
    for each in files.get_file_info(fs.FileSelector("", allow_not_found=True)):
        if not each.base_name.startswith(PREFIX):
            continue
        if each.type is fs.FileType.File:
            yield each
        elif each.type is fs.FileType.Directory:
            inside = files.get_file_info(fs.FileSelector(each.path, recursive=True))
            yield from (found for found in inside if found.type is fs.FileType.File)


def _checksum_of(path: str) -> str:
    """Return the path of the checksum file that Hadoop writes for a local file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"
