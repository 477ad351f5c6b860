"""Parquet files of a batch: how tasks write them, and the statistics of their footers."""

from __future__ import annotations

import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

from spark_groups.spark.tables.columns import TableColumns, schema_as_text, schema_of_text
from spark_groups.spark.tables.partition_values import split
from spark_groups.spark.tables.table import Piece

STORE_REQUESTS_MAX: Final = 16
"""How many requests to a store run at once."""
TARGET_FILE_BYTES: Final = 256 * 1024 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
FEW_VALUES: Final = ("topic", "partition", "timestampType")
"""Columns with few different values: only these are worth a dictionary (measured)."""
_TEXT_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class FileDetails:
    """The columns, statistics and partition of a file, for the table's metadata.

    Args:
        schema: The columns of its rows, with those that the table is partitioned by.
        statistics: Its statistics in the JSON of Delta's log.
        partition_values: The values of its rows in partition columns, as text; None: null.
    """

    schema: pa.Schema
    statistics: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, piece: Piece) -> FileDetails:
        """Read the details of a piece that `write_files` or `no_rows` made."""
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
    for each in pieces:
        schema = FileDetails.of(each).schema
        found.setdefault(str(schema), schema)
    return [found[text] for text in sorted(found)]


def no_rows(schema: pa.Schema) -> Piece:
    """Return what stands for a batch without rows, whose columns a new table has.

    Args:
        schema: The columns of the batch.
    """
    return Piece("", 0, details=FileDetails(schema, "").text())


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
        uri: The table's directory.
        options: Options of `deltalake` for the store; with secrets, which the repr omits.
        attempt: The beginning of the names of the files.
        columns: The columns of the table.
        target_file_bytes: The size at which the task begins another file.
        compression: The compression of pages.
    """

    uri: str
    options: Mapping[str, str] = field(repr=False)
    attempt: str
    columns: TableColumns
    target_file_bytes: int
    compression: str

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Write the rows of one task.

        Args:
            batches: The rows.
            task: A name that no other task of the attempt has, nor another try of the same task.
        """
        files = files_of(self.uri, self.options)
        if isinstance(files, fs.SubTreeFileSystem):
            files.base_fs.create_dir(files.base_path, recursive=True)
        yield from write_files(
            self.columns.fitted(batches),
            files,
            lambda number: f"{self.attempt}-{task}-{number}.parquet",
            partition_by=self.columns.partition_by,
            target_bytes=self.target_file_bytes,
            compression=self.compression,
        )


@dataclass(frozen=True, slots=True)
class LocatedTaskWriter:
    """Writes the Parquet files of a task; the names of pieces are URIs; pickled to executors.

    Args:
        location: The URI of the directory.
        files: The directory as a file system; with secrets, which the repr omits.
        attempt: The beginning of the names of the files.
        columns: The columns of the table.
        target_file_bytes: The size at which the task begins another file.
        compression: The compression of pages.
    """

    location: str
    files: fs.SubTreeFileSystem = field(repr=False)
    attempt: str
    columns: TableColumns
    target_file_bytes: int
    compression: str

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Write the rows of one task.

        Args:
            batches: The rows.
            task: A name that no other task of the attempt has, nor another try of the same task.
        """
        if isinstance(self.files.base_fs, fs.LocalFileSystem):
            self.files.base_fs.create_dir(self.files.base_path, recursive=True)
        for each in write_files(
            self.columns.fitted(batches),
            self.files,
            lambda number: f"{self.attempt}-{task}-{number}.parquet",
            partition_by=self.columns.partition_by,
            target_bytes=self.target_file_bytes,
            compression=self.compression,
        ):
            yield replace(each, name=f"{self.location}/{each.name}")


def write_files(
    batches: Iterable[pa.RecordBatch],
    files: fs.FileSystem,
    name: Callable[[int], str],
    *,
    partition_by: Sequence[str] = (),
    target_bytes: int,
    compression: str,
) -> Iterator[Piece]:
    """Write record batches into files; without rows there is no file, but a piece with columns.

    Args:
        batches: The rows, of one schema.
        files: The directory.
        name: Returns the name of each file, by its number.
        partition_by: The columns of which each file has one value.
        target_bytes: The size at which the next file begins.
        compression: The compression of pages.
    """
    empty: list[pa.Schema] = []
    groups = _row_groups(batches, empty)
    numbers = itertools.count()
    for first in groups:
        for values, rows in split(first, partition_by):
            path = name(next(numbers))
            more = iter(()) if partition_by else groups
            with files.open_output_stream(path, compression=None) as sink:
                footer = _write_file(sink, rows, more, target_bytes, compression)
                size_bytes = sink.tell()
            details = FileDetails(first.schema, statistics(footer), values)
            yield Piece(path, footer.num_rows, size_bytes, details.text())
    if not next(numbers) and empty:
        yield no_rows(empty[0])


def _write_file(
    sink: pa.NativeFile,
    first: pa.Table,
    more: Iterator[pa.Table],
    target_bytes: int,
    compression: str,
) -> parquet.FileMetaData:
    """Write a file of one row group, and of more until it is large enough."""
    footers: list[parquet.FileMetaData] = []
    with parquet.ParquetWriter(
        sink,
        first.schema,
        compression=compression,
        use_dictionary=[each for each in FEW_VALUES if each in first.schema.names],
        write_statistics=_with_statistics(first.schema),
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        writer.write_table(first)
        while sink.tell() < target_bytes and (group := next(more, None)) is not None:
            writer.write_table(group)
    return footers[0]


def _row_groups(batches: Iterable[pa.RecordBatch], empty: list[pa.Schema]) -> Iterator[pa.Table]:
    """Join record batches until they are large enough for a row group.

    Args:
        batches: The rows.
        empty: Gets the columns of the first batch without rows.
    """
    pending: list[pa.RecordBatch] = []
    size_bytes = 0
    for each in batches:
        if not each.num_rows:
            empty += [each.schema][len(empty) :]
            continue
        pending.append(each)
        size_bytes += each.nbytes
        if size_bytes >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size_bytes = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns whose least and largest values help a reader to skip files.

    Not floating point: NaN is the largest number for Spark, and footers do not count it.
    """
    return [each.name for each in schema if _is_compared(each.type)]


def _is_compared(column: pa.DataType) -> bool:
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
        found = [each.statistics for each in groups if each.is_stats_set]
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
            _put(least, column.name, _exact(bounds[0]))
            _put(largest, column.name, _exact(bounds[1]))
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": least,
            "maxValues": largest,
            "nullCount": nulls,
        }
    )


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values[name] = value


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
