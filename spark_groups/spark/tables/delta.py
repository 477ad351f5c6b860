"""`spark_groups.delta_table`: a Delta table whose commits are fenced by application transactions.

A commit takes exactly the version after the compared one. If another writer has committed since,
the library does not retry; the batch is compared again. So a zombie is refused, and each commit
records its own version.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.spark.tables.delta_log import (
    VERSION,
    DeltaLog,
    committed_paths,
    transactions_of,
)
from spark_groups.spark.tables.fence import Decision, Entry, FenceKey, TableState
from spark_groups.spark.tables.orphans import orphans_of, remove_files
from spark_groups.spark.tables.parquet_files import (
    STORE_REQUESTS_MAX,
    TARGET_FILE_BYTES,
    TIMESTAMPS,
    FileDetails,
    ParquetTaskWriter,
    files_of,
    no_rows,
    piece_of,
)
from spark_groups.spark.tables.table import PREFIX, Attempt, Orphan, Piece, described
from spark_groups.types import TopicId

try:
    import deltalake
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as error:
    raise OptionsError("a Delta table needs deltalake: install spark-groups[delta]") from error

if TYPE_CHECKING:
    # The commands for tables need no Spark.
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL: Final = 10
_INTERVAL: Final = "delta.checkpointInterval"
_RETENTION: Final = "delta.setTransactionRetentionDuration"
_MAPPING: Final = "delta.columnMapping.mode"
_CONSTRAINT: Final = "delta.constraints."
_UNSAFE: Final = "allow_unsafe_rename"
_UNCHECKED: Final = ("delta.generationExpression", "delta.invariants", "delta.identity.start")
_NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"


def delta_table(
    path: str | Path,
    storage_options: Mapping[str, str] | None = None,
    *,
    partition_by: str | Sequence[str] = (),
    target_file_bytes: int = TARGET_FILE_BYTES,
    compression: str = "snappy",
) -> DeltaTable:
    """Return a Delta table for `spark_groups.write_table`; the first batch may create it.

    Args:
        path: Its directory, or a URI such as `s3a://bucket/table`; all executors have to reach it.
        storage_options: Options of `deltalake` for the store, such as `aws_region`.
        partition_by: The columns that a new table is partitioned by.
        target_file_bytes: The size at which a task begins another file.
        compression: The compression of Parquet pages.

    Raises:
        OptionsError: `deltalake` is missing, or commits could overwrite each other.
    """
    options = dict(storage_options or {})
    if any(
        name.lower().endswith(_UNSAFE) and value.lower() not in {"false", "0"}
        for name, value in {**os.environ, **options}.items()
    ):
        raise OptionsError(
            "allow_unsafe_rename lets one commit of a Delta table overwrite another, so a zombie"
            " could commit: remove it, and use a store with conditional writes or a lock"
        )
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return DeltaTable(_uri(str(path)), options, columns, target_file_bytes, compression)


def _uri(path: str) -> str:
    """Return a path as a URI that `deltalake` and Spark both accept."""
    if urllib.parse.urlsplit(path).scheme:
        return path.rstrip("/")
    return Path(path).resolve().as_uri()


def _hadoop_path(uri: str) -> str:
    """Return a URI for Hadoop, which does not decode `%20` and the like in local paths."""
    parts = urllib.parse.urlsplit(uri)
    return f"file://{urllib.parse.unquote(parts.path)}" if parts.scheme == "file" else uri


class DeltaTable:
    """A Delta table with a fence; `delta_table` makes one.

    Args:
        uri: The URI of its directory.
        options: Options of `deltalake` for the store.
        partition_by: The columns that a new table is partitioned by.
        target_file_bytes: The size at which a task begins another file.
        compression: The compression of Parquet pages.
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str],
        partition_by: tuple[str, ...],
        target_file_bytes: int,
        compression: str,
    ) -> None:
        self._uri = uri
        self._options = dict(options)
        self._partition_by = partition_by
        self._target_file_bytes = target_file_bytes
        self._compression = compression
        self._files = files_of(uri, options)
        self._table: deltalake.DeltaTable | None = None
        self._log = DeltaLog(self._files)
        self._schemas: set[tuple[str, str]] = set()
        # Two queries of one application may write to the same table.
        self._lock = threading.RLock()

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return f"the Delta table {self._uri}"

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

        Args:
            group_id: The group whose last commit `recorded_version` is about.
            topic_ids: The topics whose entries are returned, for every group; None: all.

        Raises:
            TableError: A setting of the table would delete entries, or need a check of the rows.
        """
        with self._lock:
            table = self._opened()
            if table is None:
                return TableState()
            try:
                self._log.advance(table.version())
            except TableChangedError:
                # Its commits were deleted after a checkpoint: the next read begins with that.
                self._log = DeltaLog(self._files)
                raise
            recorded = self._log.recorded_version(group_id)
            return TableState(
                version=self._log.version,
                is_there=True,
                entries={
                    key: entry
                    for key, entry in self._log.entries.items()
                    if topic_ids is None or key.topic_id in topic_ids
                },
                recorded_version=recorded,
                restored_to=None if recorded is None else self._log.restored_to(recorded),
            )

    def task_writer(self, attempt: Attempt) -> ParquetTaskWriter:
        """Return the writer that stages files in the tasks of an attempt.

        Args:
            attempt: The attempt.

        Raises:
            TableError: The table is partitioned.
        """
        if columns := self._partition_columns():
            raise TableError(
                f"{self} is partitioned by {', '.join(columns)}, but with emit=ranges tasks write"
                ' files without partitions; load the stream with .option("emit", "records")'
            )
        return ParquetTaskWriter(
            self._uri, self._options, attempt.name, self._target_file_bytes, self._compression
        )

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage the rows of a DataFrame in a directory of the attempt, with a Spark job.

        Args:
            rows: The rows.
            attempt: The attempt.
        """
        # Spark's default type for timestamps has no statistics; each query has its own session.
        rows.sparkSession.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
        writer = rows.write.option("compression", self._compression)
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if columns := self._partition_columns():
            writer = writer.partitionBy(*columns)
        writer.parquet(f"{_hadoop_path(self._uri)}/{attempt.name}")
        schema = _schema_of(rows)
        pieces = []
        for each in self._written_by_spark(attempt):
            with self._files.open_input_file(each.path) as file:
                footer = parquet.ParquetFile(file).metadata
            pieces.append(piece_of(each.path, each.size, footer, schema))
        return pieces or [no_rows(schema)]

    def _written_by_spark(self, attempt: Attempt) -> list[fs.FileInfo]:
        """Return the files that a job of Spark has written, without those of tasks in vain.

        A second try of a task may write its file below `_temporary` when the job is done.
        """
        selector = fs.FileSelector(attempt.name, recursive=True, allow_not_found=True)
        return sorted(
            (
                each
                for each in self._files.get_file_info(selector)
                if each.type is fs.FileType.File
                and each.path.endswith(".parquet")
                and not any(map(_is_hidden, each.path.split("/")))
            ),
            key=lambda info: info.path,
        )

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add files and set application transactions, in one commit of the table.

        Args:
            attempt: The attempt that staged the files.
            pieces: The files.
            decision: The result of the comparison.
            state: The fence that the batch was compared with.

        Raises:
            TableChangedError: Another writer has committed since the comparison.
            TableError: Columns of the files do not fit the table's.
        """
        written = [each for each in pieces if each.rows]
        self._check_there(written)
        has_columns = described(pieces) if state.version is None else written
        if state.version is None and not has_columns:
            # There are no columns for a new table: a later batch creates it.
            return
        version = 0 if state.version is None else state.version + 1
        transactions = {
            **transactions_of(decision.changes),
            f"{VERSION}{attempt.group_id}": version,
        }
        schema = self._checked_schema(has_columns)
        properties = deltalake.CommitProperties(
            custom_metadata={
                "spark-groups": {"group": attempt.group_id, "batch": attempt.batch_id}
            },
            max_commit_retries=0,
            app_transactions=[
                deltalake.Transaction(name, number) for name, number in transactions.items()
            ],
        )
        columns = self._partition_columns()
        self._check_partitioning(written, columns)
        now_ms = int(time.time() * 1000)
        actions = [_add_action(each, columns, now_ms) for each in written]
        with self._lock:
            compared = -1 if state.version is None else state.version
            at = -1 if self._table is None else self._table.version()
            if not compared == at == self._log.version:
                raise TableChangedError(f"another query of this application has written {self}")
            if state.version is not None and not self._log.is_still_there():
                raise TableChangedError(f"{self} was dropped and created again")
            if state.version is None:
                self._create(actions, schema, properties)
            else:
                self._append(actions, schema, properties)
            self._log.committed(version, transactions)
            self._write_checkpoint(version)

    def held(self, group_id: str, restored_to: int | None = None) -> dict[FenceKey, Entry]:
        """Return the group's entries in the version whose rows the table has.

        This is the current version unless the table was restored after the group's last commit.

        Args:
            group_id: The group.
            restored_to: The version that a restore to a time went back to, which the log does not
                name.

        Raises:
            TableError: The log does not name the version that a restore went back to and
                `restored_to` is None, or it names all and `restored_to` is given, or it lacks the
                commit.
        """
        with self._lock:
            self.read(group_id)
            log = self._log
            while (recorded := log.recorded_version(group_id)) is not None:
                restore = log.last_restore(recorded)
                if restore is None:
                    break
                at, to = restore
                if to is None:
                    to, restored_to = restored_to, None
                if to is None or not 0 <= to < at:
                    raise TableError(
                        f"{self} was restored in version {at}, and its log names no version before"
                        " that: find it with DESCRIBE HISTORY, and pass it as --restored-to"
                    )
                log = DeltaLog(self._files)
                try:
                    log.advance(to)
                except TableChangedError as error:
                    raise TableError(
                        f"{self} was restored to version {to}, which its log no longer has: {error}"
                    ) from error
            if restored_to is not None:
                raise TableError(f"omit --restored-to: the log of {self} names the version")
            return {key: each for key, each in log.entries.items() if key.group_id == group_id}

    def orphans(self, older_than_s: float) -> list[Orphan]:
        """Return files of crashed or refused attempts, which are in no version of the table.

        Args:
            older_than_s: Younger files may belong to a batch in progress.

        Raises:
            TableError: There is no such table, or its log cannot be read completely.
        """
        if self._opened() is None:
            raise TableError(f"there is no table: {self}")
        return orphans_of(
            self._files,
            lambda: committed_paths(self._files, PREFIX),
            older_than_s=older_than_s,
            now_s=time.time(),
        )

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Delete orphans.

        Args:
            orphans: From `orphans`.
        """
        remove_files(self._files, orphans)

    def _opened(self) -> deltalake.DeltaTable | None:
        """Return the current table, after a check of its settings; None if there is none."""
        if self._table is not None and self._log.is_still_there():
            self._table.update_incremental()
        else:
            try:
                table = deltalake.DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError as error:
                if self._table is not None:
                    raise TableError(f"{self} was dropped; start the query again") from error
                return None
            self._check_is_the_same(table)
            self._table, self._log = table, DeltaLog(self._files)
        self._check_settings(self._table)
        return self._table

    def _check_is_the_same(self, table: deltalake.DeltaTable) -> None:
        """Refuse a table that was dropped and created again since this query has read it.

        Raises:
            TableError: It was, or its log lacks commits that this query has read.
        """
        if self._table is None:
            return
        if table.metadata().id != self._table.metadata().id:
            raise TableError(f"{self} was dropped and created again; start the query again")
        if table.version() < self._log.version:
            raise TableError(
                f"{self} went from version {self._log.version} to {table.version()}: its log was"
                " changed by hand, or replaced by a copy; start the query again"
            )

    def _check_settings(self, table: deltalake.DeltaTable) -> None:
        """Refuse settings that delete entries, and those that the staged files would break."""
        configuration = table.metadata().configuration
        if _RETENTION in configuration:
            raise TableError(
                f"{self} has {_RETENTION}, which deletes the entries of idle partitions:"
                f" ALTER TABLE ... UNSET TBLPROPERTIES ('{_RETENTION}')"
            )
        if configuration.get(_MAPPING, "none") != "none":
            raise TableError(f"{self} maps names of columns ({_MAPPING}), which is not supported")
        constraints = sorted(name for name in configuration if name.startswith(_CONSTRAINT))
        if constraints:
            raise TableError(
                f"{self} has constraints, which this writer does not check:"
                f" {', '.join(constraints)}; drop them, and check the rows in the transform"
            )

    def _check_there(self, pieces: Sequence[Piece]) -> None:
        """Refuse files that are on disks of other machines, or were deleted since.

        Raises:
            TableError: The driver does not see a file.
        """
        with ThreadPoolExecutor(STORE_REQUESTS_MAX) as pool:
            found = [*pool.map(self._files.get_file_info, (each.name for each in pieces))]
        for each in found:
            if each.type is fs.FileType.NotFound:
                raise TableError(
                    f"{self} lacks {each.path}, which a task has written: the path has to be one"
                    " that the driver and all executors share, and spark-groups table vacuum needs"
                    " an age that is longer than any batch takes; start the query again"
                )

    def _partition_columns(self) -> tuple[str, ...]:
        """Return the columns that the table is partitioned by."""
        if self._table is None:
            return self._partition_by
        return tuple(self._table.metadata().partition_columns)

    def _check_partitioning(self, pieces: Sequence[Piece], columns: Sequence[str]) -> None:
        """Refuse files that were written for other partition columns than those of the table.

        Raises:
            TableError: Another writer has created the table since, with other partition columns.
        """
        for each in pieces:
            has = _directory_values(each.name)
            if set(has) != set(columns):
                raise TableError(
                    f"{self} was created by another writer with partition_by={list(columns)}, but"
                    f" {each.name} was written with partition_by={list(has)}: give the same columns"
                    " to every application that writes the table, and start the query again"
                )

    def _checked_schema(self, pieces: Sequence[Piece]) -> pa.Schema | None:
        """Return the columns of the files; None: no files.

        Raises:
            TableError: They do not fit the table's.
        """
        texts = {FileDetails.of(each).schema_text for each in pieces}
        schema = None
        for text in sorted(texts):
            schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))
            if self._table is not None:
                self._check_schema(text, schema, self._table)
        if len(texts) > 1 and self._table is None:
            raise TableError(f"tasks wrote files with different columns to {self}")
        return schema

    def _check_schema(self, text: str, schema: pa.Schema, table: deltalake.DeltaTable) -> None:
        wanted = table.schema().to_json()
        if (text, wanted) in self._schemas:
            return
        columns = {each["name"]: each for each in json.loads(wanted)["fields"]}
        given = {each["name"]: each for each in _delta_fields(schema)}
        problems = [
            f"{name} is {_shown(each['type'])}, not {_shown(columns[name]['type'])}"
            if name in columns
            else f"{name} is not a column of the table"
            for name, each in given.items()
            if name not in columns or _relaxed(columns[name]["type"]) != _relaxed(each["type"])
        ]
        problems += [
            f"{name} is missing, and must not be null"
            for name, each in columns.items()
            if name not in given and not each["nullable"] and name not in self._partition_columns()
        ]
        problems += [
            f"{name} is not null or computed ({mark}), which this writer does not check"
            for name, each in columns.items()
            for mark in _UNCHECKED
            if mark in each["metadata"]
        ]
        if problems:
            raise TableError(
                f"the batch does not fit {self}: {'; '.join(problems)}. Change the transform, or"
                " the table with ALTER TABLE"
            )
        self._schemas.add((text, wanted))

    def _create(
        self,
        actions: list[AddAction],
        schema: pa.Schema | None,
        properties: deltalake.CommitProperties,
    ) -> None:
        assert schema is not None
        fields = _delta_schema(schema)
        try:
            create_table_with_add_actions(
                self._uri,
                fields,
                actions,
                mode="error",
                partition_by=list(self._partition_by),
                configuration={_INTERVAL: str(CHECKPOINT_INTERVAL)},
                storage_options=self._options,
                commit_properties=properties,
            )
        except DeltaError as error:
            if not deltalake.DeltaTable.is_deltatable(self._uri, self._options):
                raise
            raise TableChangedError(f"another writer has created {self}") from error
        self._table = deltalake.DeltaTable(self._uri, storage_options=self._options)

    def _append(
        self,
        actions: list[AddAction],
        schema: pa.Schema | None,
        properties: deltalake.CommitProperties,
    ) -> None:
        assert self._table is not None
        try:
            self._table.create_write_transaction(
                [*actions],
                "append",
                self._table.schema() if schema is None else _delta_schema(schema),
                list(self._partition_columns()),
                commit_properties=properties,
            )
        except deltalake.exceptions.CommitFailedError as error:
            raise TableChangedError(f"another writer has committed to {self}: {error}") from error

    def _write_checkpoint(self, version: int) -> None:
        """Write a checkpoint as often as Spark does; the library has another default.

        The rows are committed already, so an error here is logged and does not fail the batch.
        """
        assert self._table is not None
        if _INTERVAL in self._table.metadata().configuration or (version + 1) % CHECKPOINT_INTERVAL:
            return
        try:
            self._table.update_incremental()
            self._table.create_checkpoint()
        except Exception as error:
            logger.warning("%s: no checkpoint of version %d was written: %s", self, version, error)


def _add_action(piece: Piece, columns: Sequence[str], now_ms: int) -> AddAction:
    return AddAction(
        path=piece.name,
        size=piece.size_bytes,
        partition_values=_partition_values(piece.name, columns),
        modification_time=now_ms,
        data_change=True,
        stats=FileDetails.of(piece).statistics,
    )


def _partition_values(name: str, columns: Sequence[str]) -> dict[str, str | None]:
    """Return the values of partition columns, from the directory names that Spark writes."""
    values = _directory_values(name)
    return {
        each: None if values[each] == _NULL_DIRECTORY else urllib.parse.unquote(values[each])
        for each in columns
    }


def _is_hidden(name: str) -> bool:
    """Tell whether Spark leaves a file or a directory out when it reads a table."""
    return name.startswith((".", "_")) and "=" not in name


def _directory_values(name: str) -> dict[str, str]:
    """Return the columns and values in the names of a file's directories."""
    found = (part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
    return {urllib.parse.unquote(column): value for column, value in found}


def _delta_schema(schema: pa.Schema) -> deltalake.Schema:
    """Return the columns of a new table with an Arrow schema; all of them may be null.

    Raises:
        TableError: Delta has no such type.
    """
    unsigned = [each.name for each in schema if pa.types.is_unsigned_integer(each.type)]
    if unsigned:
        raise TableError(
            f"Delta has no unsigned numbers: cast {', '.join(unsigned)} in the transform"
        )
    nullable = pa.schema([each.with_nullable(True) for each in schema])
    try:
        return deltalake.Schema.from_arrow(nullable)
    except Exception as error:
        reason = str(error).split("\n", 1)[0]
        raise TableError(f"a column has a type that Delta does not have: {reason}") from error


def _schema_of(rows: DataFrame) -> pa.Schema:
    """Return the columns of a DataFrame, with the types that Spark writes to Delta tables.

    Raises:
        TableError: Delta has no such type.
    """
    text = rows.schema.json()
    try:
        return pa.schema(deltalake.Schema.from_json(text).to_arrow())
    except Exception as error:
        raise TableError(f"a column has a type that Delta does not have: {text}") from error


def _delta_fields(schema: pa.Schema) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(_delta_schema(schema).to_json())["fields"]
    return fields


def _relaxed(column: Any) -> Any:
    """Return a type without nullability and metadata."""
    if isinstance(column, dict):
        left_out = {"nullable", "containsNull", "valueContainsNull", "metadata"}
        return {name: _relaxed(each) for name, each in column.items() if name not in left_out}
    return [_relaxed(each) for each in column] if isinstance(column, list) else column


def _shown(column: Any) -> str:
    return column if isinstance(column, str) else json.dumps(_relaxed(column))
