"""The fence in the log of a Delta table: application transactions, and restores.

`deltalake` looks up one application transaction by its id. This module reads all of them, once from
the last checkpoint and then from each new commit; a trigger in which no other writer has committed
reads nothing.

    spark-groups/<group>/<topic id>/<partition>         the next offset
    spark-groups-start/<group>/<topic id>/<partition>   the first offset
    spark-groups-version/<group>                        the version of the group's last commit
    spark-groups-table/<group>/<table id>               the group's first commit there
"""

from __future__ import annotations

import json
import logging
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

from spark_groups.errors import TableChangedError, TableError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey
from spark_groups.spark.tables.parquet_files import STORE_REQUESTS_MAX
from spark_groups.types import parse_topic_id, topic_id_text

logger = logging.getLogger(__name__)

NEXT: Final = "spark-groups/"
START: Final = "spark-groups-start/"
VERSION: Final = "spark-groups-version/"
TABLE: Final = "spark-groups-table/"
_LOG: Final = "_delta_log"
DAMAGED: Final = (pa.ArrowException, OSError, ValueError, KeyError)
"""Errors of a file that is empty, cut, or no checkpoint."""
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint\.(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    r"|parquet|[0-9a-f-]+\.(?:parquet|json))"
)


def transactions_of(changes: Iterable[EntryChange]) -> dict[str, int]:
    """Return the application transactions that change entries, without the group's version.

    Args:
        changes: The changes of a commit.
    """
    found: dict[str, int] = {}
    for each in changes:
        name = f"{each.key.group_id}/{topic_id_text(each.key.topic_id)}/{each.key.partition}"
        if each.expected is None or each.expected.start_offset != each.entry.start_offset:
            found[f"{START}{name}"] = each.entry.start_offset
        found[f"{NEXT}{name}"] = each.entry.next_offset
    return found


class DeltaLog:
    """The fence in the log of a Delta table, at one version.

    Args:
        files: The table's directory.
    """

    def __init__(self, files: fs.FileSystem) -> None:
        self._files = files
        self.version = -1
        self.entries: dict[FenceKey, Entry] = {}
        self._starts: dict[FenceKey, int] = {}
        self._group_versions: dict[str, int] = {}
        self._table_ids: dict[str, tuple[int, str]] = {}
        """The id of the table that each group has written last, behind the version of its first
        commit to it."""
        self._ids: dict[int, str] = {}
        """The id that the table has from a version on, where its commit was read."""
        self._restores: dict[int, int | None] = {}
        """The version that each restore went back to, by its own; None: to a time."""
        self._seen_from = 0
        """The first version whose commit was searched for a restore."""
        self._last_file: tuple[Any, ...] = ()
        """The version, type, size and time of the commit file of `version`."""

    def advance(self, version: int) -> None:
        """Read up to a version.

        Args:
            version: A version of the table; not below the last one that was read.

        Raises:
            TableChangedError: A commit is missing, because the log was cleaned up meanwhile or the
                table was created again.
        """
        if self.version < 0:
            self._load(version)
        for each in range(self.version + 1, version + 1):
            self._apply(each, _actions(self._read(_commit_name(each))))
        if not self._last_file or self._last_file[0] != version:
            self._last_file = self._file_of(version)

    def committed(self, version: int, transactions: Mapping[str, int]) -> None:
        """Apply a commit of this process without a read of its file.

        Args:
            version: Its version: the one after the last.
            transactions: Its application transactions.
        """
        for name, number in transactions.items():
            self._note(name, number)
        self.version = version
        self._last_file = self._file_of(version)

    def is_still_there(self) -> bool:
        """Return whether the directory still has the log that was read.

        A commit file never changes. If the table was created again, the commit file of the same
        version is missing, or has another size or time.
        """
        return self.version >= 0 and self._last_file == self._file_of(self.version)

    def has_commit(self, version: int) -> bool:
        """Return whether the log has the commit of a version.

        Args:
            version: The version.
        """
        found = self._files.get_file_info(f"{_LOG}/{_commit_name(version)}")
        return bool(found.type is fs.FileType.File)

    def recorded_version(self, group_id: str) -> int | None:
        """Return the version that a group's last commit recorded; None: it has not committed.

        Args:
            group_id: The group.
        """
        return self._group_versions.get(group_id)

    def is_recorded(self, group_id: str, table_id: str) -> bool:
        """Return whether a table's id is the last one that a group has recorded.

        Args:
            group_id: The group.
            table_id: The id.
        """
        return self._table_ids.get(group_id, (0, ""))[1] == table_id

    def recorded_table_id(self, group_id: str) -> str | None:
        """Return the id of the table that a group has written last; None: none is recorded.

        Args:
            group_id: The group.
        """
        recorded = self._table_ids.get(group_id)
        if recorded is not None:
            return recorded[1]
        # The commit that creates a table cannot record its id.
        until = self._group_versions.get(group_id, -1)
        return max(
            ((at, each) for at, each in self._ids.items() if at <= until), default=(0, None)
        )[1]

    def restored_to(self, after: int) -> int | None:
        """Return the lowest version that the table was restored to; None: it was not restored.

        Args:
            after: The version after which restores count.
        """
        self._look_back(after + 1)
        # A restore to a time may have gone back to any version.
        return min((to or 0 for at, to in self._restores.items() if at > after), default=None)

    def last_restore(self, after: int) -> tuple[int, int | None] | None:
        """Return the version of the last restore, and the version that it went back to.

        None instead of the pair: the table was not restored. None in it: it went back to a time.

        Args:
            after: The version after which restores count.
        """
        self._look_back(after + 1)
        at = max((restore for restore in self._restores if restore > after), default=None)
        return None if at is None else (at, self._restores[at])

    def _load(self, version: int) -> None:
        """Read the last whole checkpoint that is not newer than a version.

        Raises:
            TableError: It cannot be read, and the log lacks the commits from an older one on.
        """
        all_names = _names(self._files)
        there = set(_commits(all_names))
        problem = ""
        for checkpoint, names in _checkpoints(all_names, version):
            if problem and not there.issuperset(range(checkpoint + 1, version + 1)):
                continue
            try:
                found = [each for name in names for each in _checkpointed(self._files, name)]
            except DAMAGED as error:
                problem = problem or f"{', '.join(names)} cannot be read: {error}"
                logger.warning("a checkpoint of Delta's log is damaged, and is left out: %s", error)
                continue
            self._note_all(found)
            self.version = checkpoint
            self._seen_from = checkpoint + 1
            return
        raise TableError(
            f"Delta's log is damaged: {problem}, and it lacks commits after older checkpoints."
            f" Restore the file below {_LOG}, or the table from a backup"
        )

    def _look_back(self, first: int) -> None:
        """Search for restores in commits before the checkpoint, which does not record them."""
        if first >= self._seen_from:
            return
        wanted = range(first, self._seen_from)
        there = sorted({each for each in _commits(_names(self._files)) if each in wanted})
        if len(there) < len(wanted):
            logger.warning(
                "Delta's log no longer has the commits %d to %d: a RESTORE of the table among them"
                " cannot be detected",
                first,
                (there[0] if there else self._seen_from) - 1,
            )
        with ThreadPoolExecutor(STORE_REQUESTS_MAX) as pool:
            texts = pool.map(self._read, map(_commit_name, there))
        for each, text in zip(there, texts, strict=True):
            self._note_restore(each, _actions(text))
        self._seen_from = first

    def _apply(self, version: int, actions: Iterable[Mapping[str, Any]]) -> None:
        actions = list(actions)
        self._note_all(action["txn"] for action in actions if "txn" in action)
        self._note_restore(version, actions)
        for action in actions:
            if "metaData" in action:
                self._ids[version] = action["metaData"]["id"]
        self.version = version

    def _note_all(self, transactions: Iterable[Mapping[str, Any]]) -> None:
        # First offsets come before next offsets: an entry needs both.
        ours = {
            transaction["appId"]: int(transaction["version"])
            for transaction in transactions
            if transaction["appId"].startswith((NEXT, START, VERSION, TABLE))
        }
        for name in sorted(ours, key=lambda each: not each.startswith(START)):
            self._note(name, ours[name])

    def _note(self, name: str, number: int) -> None:
        if name.startswith(VERSION):
            self._group_versions[name.removeprefix(VERSION)] = number
            return
        if name.startswith(TABLE):
            group_id, _, table_id = name.removeprefix(TABLE).rpartition("/")
            self._table_ids[group_id] = max(
                self._table_ids.get(group_id, (-1, "")), (number, table_id)
            )
            return
        kind = START if name.startswith(START) else NEXT
        key = _key_of(name.removeprefix(kind))
        if key is None:
            return
        if kind == START:
            self._starts[key] = number
        else:
            self.entries[key] = Entry(min(self._starts.get(key, number), number), number)

    def _note_restore(self, version: int, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            information = action.get("commitInfo") or {}
            if information.get("operation") == "RESTORE":
                to = str((information.get("operationParameters") or {}).get("version"))
                self._restores[version] = int(to) if to.isdigit() else None

    def _file_of(self, version: int) -> tuple[Any, ...]:
        found = self._files.get_file_info(f"{_LOG}/{_commit_name(version)}")
        return version, found.type, found.size, found.mtime_ns

    def _read(self, name: str) -> bytes:
        try:
            with self._files.open_input_stream(f"{_LOG}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError as error:
            raise TableChangedError(
                f"Delta's log has no {name}: it was cleaned up while it was read, or another table"
                " is in its place"
            ) from error


def committed_paths(files: fs.FileSystem, prefix: str) -> set[str]:
    """Return paths of files that the log names as added or removed.

    Args:
        files: The table's directory.
        prefix: The beginning of the paths.

    Raises:
        TableError: The last checkpoint names its files in sidecar files.
    """
    names = _names(files)
    commits = _commits(names)
    _, checkpoints = _checkpoints(names, max(commits, default=0))[0]
    found: set[str] = set()
    try:
        for name in checkpoints:
            found |= _checkpointed_paths(files, name)
    except DAMAGED as error:
        raise TableError(
            f"Delta's log is damaged: {', '.join(checkpoints)} cannot be read: {error}"
        ) from error
    for each in commits:
        with files.open_input_stream(f"{_LOG}/{_commit_name(each)}") as stream:
            text = bytes(stream.read())
        for line in text.splitlines():
            if prefix.encode() in line and (b'"add"' in line[:16] or b'"remove"' in line[:16]):
                (action,) = json.loads(line).values()
                found.add(action["path"])
    # Paths are URI-encoded, but not by every writer.
    found |= {urllib.parse.unquote(each) for each in found}
    return {each for each in found if each.startswith(prefix)}


def _checkpointed_paths(files: fs.FileSystem, name: str) -> set[str]:
    with files.open_input_file(f"{_LOG}/{name}") as file:
        footer = None if name.endswith(".json") else parquet.ParquetFile(file)
        names = ["add.path", "remove.path", "sidecar.path"]
        table = pa.table({}) if footer is None else footer.read(columns=names)
        # deltalake writes an empty column of sidecar files.
        named = table["sidecar"].drop_null() if "sidecar" in table.column_names else ()
        if footer is None or len(named):
            raise TableError(
                "the last checkpoint of Delta's log names its files in sidecar files, which this"
                " command does not read: use VACUUM of Delta"
            )
    return {
        row["path"]
        for column in {"add", "remove"} & set(table.column_names)
        for row in table[column].to_pylist()
        if row is not None and row["path"] is not None
    }


def _names(files: fs.FileSystem) -> list[str]:
    return [each.base_name for each in files.get_file_info(fs.FileSelector(_LOG))]


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


def _commits(names: Iterable[str]) -> list[int]:
    return [int(found[1]) for found in map(_COMMIT.fullmatch, names) if found]


def _checkpoints(names: Iterable[str], version: int) -> list[tuple[int, list[str]]]:
    """Return the version and files of each complete checkpoint, the last one first; then -1."""
    whole: dict[int, list[str]] = {-1: []}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is None or int(match[1]) > version:
            continue
        if match["part"] is None:
            # Each of these files is a complete checkpoint; any of them will do.
            whole[int(match[1])] = [name]
        else:
            parts.setdefault((int(match[1]), int(match["parts"])), []).append(name)
    for (at, count), found in parts.items():
        if len(found) == count:
            whole.setdefault(at, found)
    return sorted(whole.items(), reverse=True)


def damaged_checkpoint(files: fs.FileSystem) -> str:
    """Return why the last checkpoint of a log cannot be read; empty: it can be.

    Args:
        files: The table's directory.
    """
    try:
        names = _names(files)
    except OSError:
        return ""
    _, last = _checkpoints(names, max(_commits(names), default=0))[0]
    try:
        for name in last:
            list(_checkpointed(files, name))
    except DAMAGED as error:
        return f"The file {_LOG}/{', '.join(last)} is damaged: {error}"
    return ""


def _checkpointed(files: fs.FileSystem, name: str) -> Iterator[Mapping[str, Any]]:
    """Return the application transactions in a file of a checkpoint."""
    with files.open_input_file(f"{_LOG}/{name}") as file:
        if name.endswith(".json"):
            yield from (each["txn"] for each in _actions(bytes(file.read())) if "txn" in each)
            return
        column = parquet.ParquetFile(file).read(columns=["txn"])["txn"]
        yield from column.drop_null().to_pylist()


def _actions(text: bytes) -> Iterator[dict[str, Any]]:
    """Return the application transactions, metadata and commit information of a commit."""
    for line in text.splitlines():
        # A commit may add thousands of files; their lines are not parsed.
        if b'"txn"' in line[:16] or b'"commitInfo"' in line[:32] or b'"metaData"' in line[:16]:
            yield json.loads(line)


def _key_of(text: str) -> FenceKey | None:
    """Parse the key of an entry; None if it cannot be parsed."""
    parts = text.rsplit("/", 2)
    try:
        group_id, topic_id, partition = parts
        return FenceKey(group_id, parse_topic_id(topic_id), int(partition))
    except ValueError:
        logger.warning("an application transaction has an id that cannot be parsed: %s", text)
        return None
