"""Tables of Parquet files: how tasks write the files, and the statistics of their footers."""

from __future__ import annotations

import copy
import itertools
import json
import time
import urllib.parse
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

from spark_groups.errors import TableError
from spark_groups.spark.tables.columns import TableColumns, schema_as_text, schema_of_text
from spark_groups.spark.tables.partition_values import split
from spark_groups.spark.tables.staged_table import StagedTable
from spark_groups.spark.tables.table import PREFIX, Attempt, Orphan, Piece, no_rows
from spark_groups.spark.tables.upserts import Upsert

STORE_REQUESTS_MAX: Final = 16
"""How many requests to a store run at once."""
TARGET_FILE_BYTES: Final = 256 * 1024 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
OPEN_FILES_MAX: Final = 64
"""How many files a task writes at once, each of another partition. A store keeps up to 10 MB of
each in memory, the size of one part of an upload."""
FEW_VALUES: Final = ("topic", "partition", "timestampType")
"""Columns with few different values: only these are worth a dictionary (measured)."""
_TEXT_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class FileDetails:
    """The columns, statistics and partition of a file, for the table's metadata.

    Args:
        schema: The columns of its rows, with those that the table is partitioned by.
        statistics: Its statistics in the JSON of Delta's log.
        partition_values: The values by which its rows are partitioned, as text; None: null.
    """

    schema: pa.Schema
    statistics: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, piece: Piece) -> FileDetails:
        """Read the details of a piece that a `ParquetTaskWriter` or `no_rows` made."""
        if not piece.rows:
            return cls(schema_of_text(piece.details), "")
        schema, of_file, partition_values = json.loads(piece.details)
        return cls(schema_of_text(schema), of_file, partition_values)

    def text(self) -> str:
        """Return the details of a piece."""
        return json.dumps([schema_as_text(self.schema), self.statistics, self.partition_values])


def schemas_of(pieces: Iterable[Piece]) -> list[pa.Schema]:
    """Return the different columns of the pieces of a batch.

    Args:
        pieces: The pieces, whose details are those of files.
    """
    found: dict[str, pa.Schema] = {}
    for piece in pieces:
        schema = FileDetails.of(piece).schema
        found.setdefault(str(schema), schema)
    return [found[text] for text in sorted(found)]


def files_of(uri: str, options: Mapping[str, str]) -> fs.FileSystem:
    """Return a table's directory as a file system.

    Args:
        uri: Its URI; `file://...` for a local one.
        options: Options of `deltalake` for the store.
    """
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(urllib.parse.unquote(parts.path), fs.LocalFileSystem())
    # A local table needs no deltalake on executors.
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415

    return fs.PyFileSystem(DeltaStorageHandler(uri, dict(options)))


@dataclass(frozen=True, slots=True)
class ParquetTaskWriter:
    """Writes the Parquet files of a task; pickled to executors.

    Args:
        files: The directory; with secrets, which the repr omits.
        name_prefix: The beginning of the names of pieces, before the file's path.
        attempt: The beginning of the names of the files.
        columns: The columns of the table.
        target_file_bytes: The size at which the task begins another file.
        compression: The compression of pages.
        upsert: How rows change the table: files have the last row of each key, and are merged into
            those of the table. None: the files become those of the table.
    """

    files: fs.FileSystem = field(repr=False)
    name_prefix: str
    attempt: str
    columns: TableColumns
    target_file_bytes: int
    compression: str
    upsert: Upsert | None = None

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Write the rows of one task; a task without rows makes no file."""
        files, columns = self.files, self.columns
        # Rows that are merged are staged together: the merge finds their partitions.
        partition_by = () if self.upsert is not None else columns.partition_by
        if isinstance(files, fs.SubTreeFileSystem) and isinstance(
            files.base_fs, fs.LocalFileSystem
        ):
            files.base_fs.create_dir(files.base_path, recursive=True)
        empty: list[pa.Schema] = []
        numbers = itertools.count()
        # The one that was written to last is the last.
        opened: dict[tuple[str | None, ...], _OpenFile] = {}
        try:
            for group in _row_groups(columns.fitted(batches), empty):
                rows = group if self.upsert is None else self.upsert.last(group)
                computed = columns.transforms.keys(rows) if columns.transforms else None
                parts = split(rows, partition_by, computed, columns.table)
                # First those whose files are open, before others close them.
                parts.sort(key=lambda part: (*part[0].values(),) not in opened)
                for values, part in parts:
                    key = (*values.values(),)
                    file = opened.pop(key, None)
                    if file is None:
                        path = f"{self.attempt}-{task}-{next(numbers)}.parquet"
                        file = self._opened(path, FileDetails(rows.schema, "", values), part.schema)
                    opened[key] = file
                    file.writer.write_table(part)
                    if file.sink.tell() >= self.target_file_bytes:
                        yield self._closed(opened.pop(key))
                    elif len(opened) > OPEN_FILES_MAX:
                        yield self._closed(opened.pop(next(iter(opened))))
            while opened:
                yield self._closed(opened.pop(next(iter(opened))))
        finally:
            for file in opened.values():
                file.writer.close()
                file.sink.close()
        if not next(numbers) and empty:
            yield no_rows(empty[0])

    def _opened(self, path: str, details: FileDetails, schema: pa.Schema) -> _OpenFile:
        sink = self.files.open_output_stream(path, compression=None)
        footers: list[parquet.FileMetaData] = []
        writer = parquet.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            use_dictionary=[each for each in FEW_VALUES if each in schema.names],
            write_statistics=[each.name for each in schema if _is_compared(each.type)],
            store_schema=False,
            metadata_collector=footers,
        )
        return _OpenFile(path, sink, writer, details, footers)

    def _closed(self, file: _OpenFile) -> Piece:
        file.writer.close()
        size_bytes = file.sink.tell()
        file.sink.close()
        (footer,) = file.footers
        details = replace(file.details, statistics=statistics(footer)).text()
        return Piece(f"{self.name_prefix}{file.path}", footer.num_rows, size_bytes, details)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file that a task writes: `footers` gets its footer when the writer is closed."""

    path: str
    sink: pa.NativeFile
    writer: parquet.ParquetWriter
    details: FileDetails
    footers: list[parquet.FileMetaData]


class LakeTable(StagedTable):
    """The base of tables of Parquet files.

    Args:
        name: The name of the table in errors and logs.
        target_file_bytes: The size at which a task begins another file.
        compression: The compression of pages.
        upsert: How rows change those with the same key; None: they are added.
    """

    def __init__(
        self, name: str, target_file_bytes: int, compression: str, upsert: Upsert | None = None
    ) -> None:
        super().__init__(name, upsert=upsert)
        self._target_file_bytes = target_file_bytes
        self._compression = compression
        self._warned_of: set[str] = set()

    def check(self) -> TableColumns:
        """Return the columns to which rows are fitted, after a look at the table.

        The look is that of another object: what a query has seen of a table begins with its first
        batch.
        """
        looking = copy.copy(self)
        looking._forget()
        with self._lock:
            looking._opened()
            return looking._columns()

    def _forget(self) -> None:
        """Forget a table that moves on with each look."""

    def task_writer(self, attempt: Attempt) -> ParquetTaskWriter:
        """Return the writer that stages files in the tasks of an attempt."""
        files, name_prefix = self._data()
        return ParquetTaskWriter(
            files,
            name_prefix,
            attempt.name,
            self._columns(),
            self._target_file_bytes,
            self._compression,
            self.upsert,
        )

    def orphans(self, older_than_s: float) -> list[Orphan]:
        """Return files of crashed or refused attempts, which are in no version of the table.

        Raises:
            TableError: There is no such table, or its versions cannot be read completely.
        """
        with self._lock:
            if self._opened() is None:
                raise TableError(f"there is no table: {self}")
        files, _ = self._data()
        staged = [
            each
            for each in files.get_file_info(fs.FileSelector("", allow_not_found=True))
            if each.base_name.startswith(PREFIX) and each.type is fs.FileType.File
        ]
        # Read after the directory: a file that is committed meanwhile is in one of the versions.
        committed = self._committed_paths()
        found = [
            Orphan(each.path, each.size, each.mtime.timestamp())
            for each in staged
            if each.path not in committed
            and each.mtime is not None
            and not _is_linked(files, each.path)
        ]
        until_s = time.time() - older_than_s
        return sorted(
            (each for each in found if each.modified_s <= until_s), key=lambda each: each.name
        )

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Delete orphans."""
        files, _ = self._data()
        for orphan in orphans:
            files.delete_file(orphan.name)

    @abstractmethod
    def _opened(self) -> object | None:
        """Return the current table, after checks of its settings; None if there is none.

        Raises:
            TableError: It cannot be opened, or is one that this writer must not write.
        """

    @abstractmethod
    def _data(self) -> tuple[fs.FileSystem, str]:
        """Return the directory of the files, and the beginning of the names of pieces."""

    @abstractmethod
    def _columns(self) -> TableColumns:
        """Return the columns of the table, to which rows are fitted."""

    @abstractmethod
    def _committed_paths(self) -> set[str]:
        """Return the files of attempts in all versions of the table, as paths in its directory."""


def _is_linked(files: fs.FileSystem, path: str) -> bool:
    """Return whether a file of a local directory is a link, which may lead out of it."""
    is_local = isinstance(files, fs.SubTreeFileSystem) and isinstance(
        files.base_fs, fs.LocalFileSystem
    )
    return is_local and (Path(files.base_path) / path).is_symlink()


def _row_groups(batches: Iterable[pa.RecordBatch], empty: list[pa.Schema]) -> Iterator[pa.Table]:
    """Join record batches until they are large enough for a row group.

    Args:
        batches: The rows.
        empty: Gets the columns of the first batch without rows.
    """
    pending: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            empty += [batch.schema][len(empty) :]
            continue
        pending.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size_bytes = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _is_compared(column: pa.DataType) -> bool:
    """Return whether least and largest values of a column help a reader to skip files.

    Not floating point: NaN is the largest number for Spark, and footers do not count it.
    """
    kinds = pa.types
    return any(
        is_kind(column)
        for is_kind in (
            kinds.is_integer,
            kinds.is_boolean,
            kinds.is_date,
            kinds.is_timestamp,
            kinds.is_string,
        )
    )


def statistics(footer: parquet.FileMetaData) -> str:
    """Return a file's statistics in the JSON of Delta's log: rows, least and largest values, nulls.

    A value that JSON cannot hold exactly is left out: a reader could skip the file wrongly.

    Args:
        footer: The file's footer.
    """
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.max_repetition_level or column.path != column.name:
            continue
        groups = [footer.row_group(each).column(index) for each in range(footer.num_row_groups)]
        found = [group.statistics for group in groups if group.is_stats_set]
        if not found or len(found) != len(groups):
            continue
        if all(each.has_null_count for each in found):
            nulls[column.name] = sum(each.null_count for each in found)
        # A row group with only nulls has no values.
        valued = [each for each in found if each.num_values]
        if valued and all(each.has_min_max for each in valued):
            try:
                bounds = min(each.min for each in valued), max(each.max for each in valued)
            except (OverflowError, ValueError):
                # Python has no dates and times outside the years 1 to 9999, but Parquet has.
                continue
            for values, bound in ((least, bounds[0]), (largest, bounds[1])):
                if (value := _exact(bound)) is not None:
                    values[column.name] = value
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": least,
            "maxValues": largest,
            "nullCount": nulls,
        }
    )


def _exact(value: Any) -> Any:
    """Return a value for JSON; None if that would not be exact."""
    match value:
        case bool() | int():
            return value
        case str():
            return value if len(value) <= _TEXT_LENGTH_MAX else None
        case datetime(tzinfo=None):
            return value.isoformat(timespec="microseconds")
        case datetime():
            utc = value.astimezone(timezone.utc).replace(tzinfo=None)
            return utc.isoformat(timespec="microseconds") + "Z"
        case date():
            return value.isoformat()
        case _:
            return None
