"""Parquet files of a batch: how tasks write them, and the statistics of their footers."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

from spark_groups.spark.tables.table import Piece

STORE_REQUESTS_MAX: Final = 16
"""How many requests to a store run at once."""
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
"""Spark's setting for the type of timestamps in Parquet files."""
TARGET_FILE_BYTES: Final = 256 * 1024 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
FEW_VALUES: Final = ("topic", "partition", "timestampType")
"""Columns with few different values: only these are worth a dictionary (measured)."""
_TEXT_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class FileDetails:
    """The columns and statistics of a file, for the table's metadata.

    Args:
        schema_text: Its columns, as Arrow serializes them, in hexadecimal digits.
        statistics: Its statistics in the JSON of Delta's log.
    """

    schema_text: str
    statistics: str

    @classmethod
    def of(cls, piece: Piece) -> FileDetails:
        """Read the details of a piece that `piece_of` or `no_rows` made."""
        return cls(*json.loads(piece.details))


def piece_of(name: str, size_bytes: int, footer: parquet.FileMetaData, schema: pa.Schema) -> Piece:
    """Return a file as a piece of a batch.

    Args:
        name: Its path in the table's directory.
        size_bytes: Its size.
        footer: Its footer.
        schema: The columns of the batch; the file may lack those that it is partitioned by.
    """
    return Piece(name, footer.num_rows, size_bytes, _details(schema, statistics(footer)))


def no_rows(schema: pa.Schema) -> Piece:
    """Return what stands for a batch without rows, whose columns a new table has.

    Args:
        schema: The columns of the batch.
    """
    return Piece("", 0, details=_details(schema, ""))


def _details(schema: pa.Schema, of_file: str) -> str:
    return json.dumps([plain_schema(schema).serialize().to_pybytes().hex(), of_file])


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
        target_file_bytes: The size at which the task begins another file.
        compression: The compression of pages.
    """

    uri: str
    options: Mapping[str, str] = field(repr=False)
    attempt: str
    target_file_bytes: int
    compression: str

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Write the rows of one task.

        Args:
            batches: The rows; all of one schema.
            task: A name that no other task of the attempt has, nor another try of the same task.
        """
        files = files_of(self.uri, self.options)
        if isinstance(files, fs.SubTreeFileSystem):
            files.base_fs.create_dir(files.base_path, recursive=True)
        yield from write_files(
            as_plain(batches),
            files,
            lambda number: f"{self.attempt}-{task}-{number}.parquet",
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
        target_file_bytes: The size at which the task begins another file.
        compression: The compression of pages.
    """

    location: str
    files: fs.SubTreeFileSystem = field(repr=False)
    attempt: str
    target_file_bytes: int
    compression: str

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Write the rows of one task.

        Args:
            batches: The rows; all of one schema.
            task: A name that no other task of the attempt has, nor another try of the same task.
        """
        if isinstance(self.files.base_fs, fs.LocalFileSystem):
            self.files.base_fs.create_dir(self.files.base_path, recursive=True)
        for each in write_files(
            as_plain(batches),
            self.files,
            lambda number: f"{self.attempt}-{task}-{number}.parquet",
            target_bytes=self.target_file_bytes,
            compression=self.compression,
        ):
            yield replace(each, name=f"{self.location}/{each.name}")


def write_files(
    batches: Iterable[pa.RecordBatch],
    files: fs.FileSystem,
    name: Callable[[int], str],
    *,
    target_bytes: int,
    compression: str,
) -> Iterator[Piece]:
    """Write record batches into files; without rows there is no file, but a piece with columns.

    Args:
        batches: The rows, of one schema.
        files: The directory.
        name: Returns the name of each file, by its number.
        target_bytes: The size at which the next file begins.
        compression: The compression of pages.
    """
    empty: list[pa.Schema] = []
    groups = _row_groups(batches, empty)
    number = -1
    for number, first in enumerate(groups):
        path = name(number)
        footers: list[parquet.FileMetaData] = []
        with files.open_output_stream(path, compression=None) as sink:
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
                while sink.tell() < target_bytes and (group := next(groups, None)) is not None:
                    writer.write_table(group)
            size_bytes = sink.tell()
        yield piece_of(path, size_bytes, footers[0], first.schema)
    if number < 0 and empty:
        yield no_rows(empty[0])


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


_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "large_string": pa.string(),
    "string_view": pa.string(),
    "large_binary": pa.binary(),
    "binary_view": pa.binary(),
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with only types that every table format has.

    Args:
        schema: The schema of record batches that an application made.
    """
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in schema])


def _plain(column: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(column):
        return _plain(column.value_type)
    if pa.types.is_timestamp(column):
        return pa.timestamp("us", tz=None if column.tz is None else "UTC")
    return _PLAIN.get(str(column), column)


def as_plain(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cast the columns of record batches to plain types.

    Args:
        batches: Rows of one schema.
    """
    for each in batches:
        wanted = plain_schema(each.schema)
        if each.schema.equals(wanted):
            yield each
            continue
        columns = [
            column.cast(field.type) for column, field in zip(each.columns, wanted, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
