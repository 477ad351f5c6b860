"""`spark_groups.delta_table`: a Delta table whose commits are fenced by application transactions.

A commit takes exactly the version after the compared one, or after that of the batch's new columns.
If another writer has committed since, the library does not retry; the batch is compared again. So a
zombie is refused, and each commit records its own version.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from spark_groups.errors import OptionsError, TableChangedError, TableError, needs
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, FenceKey, TableState, of_topics
from spark_groups.masking import Secrets, without_logins
from spark_groups.spark.tables.column_types import IN_LAKES, MICROS, TypeRules, table_schema
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.delta_features import check_features
from spark_groups.spark.tables.delta_log import (
    TABLE,
    VERSION,
    DeltaLog,
    committed_paths,
    damaged_checkpoint,
    transactions_of,
)
from spark_groups.spark.tables.growth import evolves
from spark_groups.spark.tables.parquet_files import (
    STORE_REQUESTS_MAX,
    TARGET_FILE_BYTES,
    FileDetails,
    LakeTable,
    ParquetTaskWriter,
    files_of,
    schemas_of,
)
from spark_groups.spark.tables.table import PREFIX, Attempt, Piece, described
from spark_groups.spark.tables.upserts import DELETED, Upsert, upsert_of
from spark_groups.types import TopicId

with needs("delta"):
    import deltalake
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions

    from spark_groups.spark.tables.delta_upserts import (
        changes_of,
        merged,
        remove_staged,
        stored_schema,
    )

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL: Final = 10
_INTERVAL: Final = "delta.checkpointInterval"
_RETENTION: Final = "delta.setTransactionRetentionDuration"
_MAPPING: Final = "delta.columnMapping.mode"
_CONSTRAINT: Final = "delta.constraints."
_TEXT_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata in which Spark keeps the length of text, which only writers check."""
_TEXT_LENGTH: Final = re.compile(r"(?:var)?char\((\d+)\)")
_UNSAFE: Final = "allow_unsafe_rename"
_UNCHECKED: Final = ("delta.generationExpression", "delta.invariants", "delta.identity.start")
_RULES: Final = TypeRules(
    "Delta",
    {each: each for each in (*IN_LAKES, pa.int8(), pa.int16())},
    # deltalake 1.6 does not declare the feature of these there.
    not_in_maps=frozenset({MICROS}),
    not_in_names=" ,;{}()\n\t=",
)
_NTZ: Final = "timestampNtz"
_RULES_WITHOUT_NTZ: Final = replace(
    _RULES,
    lacks={
        MICROS: f"for which the table needs the feature {_NTZ}, which older readers lack: say a"
        f" time zone, or ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.{_NTZ}' = 'supported')"
    },
)


def delta_table(
    path: str | Path,
    storage_options: Mapping[str, str] | None = None,
    *,
    partition_by: str | Sequence[str] = (),
    target_file_bytes: int = TARGET_FILE_BYTES,
    compression: str = "snappy",
    evolve: str | None = None,
    merge_on: str | Sequence[str] = (),
    delete_when: str = DELETED,
    order_by: str | None = None,
) -> DeltaTable:
    """Return a Delta table for `spark_groups.write_table`; the first batch may create it.

    Args:
        path: Its directory, or a URI such as `s3a://bucket/table`; all executors have to reach it.
        storage_options: Options of `deltalake` for the store, such as `aws_region`.
        partition_by: The columns that a new table is partitioned by.
        target_file_bytes: The size at which a task begins another file.
        compression: The compression of Parquet pages.
        evolve: `add`: a batch's new columns are added to the table; None: they are an error.
        merge_on: The columns of a key: a row replaces the one with the same key. Rows have to keep
            the `topic`, `partition` and `offset` of their record, and the last of a partition wins;
            a new table does not store these. None given: rows are added.
        delete_when: The boolean column of rows that delete the row of their key; not stored.
        order_by: The column whose greatest value wins, also over the value in the table; for keys
            that come in several partitions, which are refused without it.

    Raises:
        OptionsError: `deltalake` is missing, or commits could overwrite each other, or the columns
            of `merge_on`, `delete_when` and `order_by` do not fit each other.
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
    upsert = upsert_of(merge_on, delete_when, order_by)
    return DeltaTable(
        _uri(str(path)),
        options,
        columns,
        target_file_bytes,
        compression,
        upsert,
        evolves=evolves(evolve),
    )


def _uri(path: str) -> str:
    """Return a path as a URI that `deltalake` and Spark both accept."""
    if urllib.parse.urlsplit(path).scheme:
        return path.rstrip("/")
    return Path(path).resolve().as_uri()


class DeltaTable(LakeTable):
    """A Delta table with a fence; `delta_table` makes one, and turns a path into a URI."""

    def __init__(  # noqa: PLR0917
        self,
        uri: str,
        options: Mapping[str, str],
        partition_by: tuple[str, ...],
        target_file_bytes: int,
        compression: str,
        upsert: Upsert | None = None,
        *,
        evolves: bool = False,
    ) -> None:
        name = f"the Delta table {without_logins(uri)}"
        super().__init__(name, target_file_bytes, compression, upsert)
        self._uri = uri
        self._options = dict(options)
        self._secrets = Secrets.of(options)
        self._partition_by = partition_by
        self._evolves = evolves
        self._files = files_of(uri, options)
        self._table: deltalake.DeltaTable | None = None
        self._first_id: str | None = None
        """The id of the table that was opened first: older fences have none."""
        self._log = DeltaLog(self._files)

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

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
                entries=of_topics(self._log.entries, topic_ids),
                recorded_version=recorded,
                restored_to=None if recorded is None else self._log.restored_to(recorded),
                replaced=self._replaced(group_id),
            )

    def _table_id(self, group_id: str, version: int) -> dict[str, int]:
        """Return the transaction that records the table's id, unless it is recorded."""
        if self._table is None:
            return {}
        now = str(self._table.metadata().id)
        is_recorded = self._log.is_recorded(group_id, now)
        return {} if is_recorded else {f"{TABLE}{group_id}/{now}": version}

    def _replaced(self, group_id: str) -> tuple[str, str] | None:
        """Return the ids of the table that a group has written, and of the one in its place."""
        assert self._table is not None
        now = str(self._table.metadata().id)
        before = self._log.recorded_table_id(group_id) or self._first_id or now
        self._first_id = before
        return None if before == now else (before, now)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add or merge files and set application transactions, in one commit of the table."""
        written = [piece for piece in pieces if piece.rows]
        self._check_there(written)
        has_columns = described(pieces) if state.version is None else written
        if state.version is None and not has_columns:
            # There are no columns for a new table: a later batch creates it.
            return
        columns = self._columns()
        new = columns.check_staged(schemas_of(has_columns))
        schema = stored_schema(pa.schema(new), columns)
        added, changes = written, None
        if self.upsert is not None:
            added, changes = [], self._changes(written, self.upsert, columns)
            if state.version is None:
                added = self._first_files(attempt, changes, schema)
        actions = self._actions(added)
        with self._lock:
            compared = -1 if state.version is None else state.version
            at = -1 if self._table is None else self._table.version()
            if not compared == at == self._log.version:
                raise TableChangedError(f"another query of this application has written {self}")
            if state.version is not None and not self._log.is_still_there():
                raise TableChangedError(f"{self} was dropped and created again")
            if new and state.version is not None:
                self._add_columns(new)
            version = self._log.version + 1
            transactions = {
                **transactions_of(decision.changes),
                f"{VERSION}{attempt.group_id}": version,
                **self._table_id(attempt.group_id, version),
            }
            properties = deltalake.CommitProperties(
                custom_metadata={
                    "spark-groups": {"group": attempt.group_id, "batch": attempt.batch_id}
                },
                max_commit_retries=0,
                app_transactions=[
                    deltalake.Transaction(name, number) for name, number in transactions.items()
                ],
            )
            if state.version is None:
                self._create(actions, schema, properties)
            else:
                self._change(actions, changes, properties)
            self._log.committed(version, transactions)
            self._write_checkpoint(version)
        if self.upsert is not None:
            remove_staged(self._files, written)

    def held(self, group_id: str, restored_to: int | None = None) -> dict[FenceKey, Entry]:
        """Return the group's entries in the version whose rows the table has.

        This is the current version unless the table was restored after the group's last commit. A
        table that has replaced another one has none.

        Raises:
            TableError: The log does not name the version that a restore went back to and
                `restored_to` is None, or it names all and `restored_to` is given, or it lacks the
                commit.
        """
        with self._lock:
            if self.read(group_id).replaced:
                return {}
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
            return {key: entry for key, entry in log.entries.items() if key.group_id == group_id}

    def _committed_paths(self) -> set[str]:
        return committed_paths(self._files, PREFIX)

    def _data(self) -> tuple[fs.FileSystem, str]:
        return self._files, ""

    def _forget(self) -> None:
        self._table = None

    def _opened(self) -> deltalake.DeltaTable | None:
        try:
            if self._table is not None and self._log.is_still_there():
                self._table.update_incremental()
            else:
                table = deltalake.DeltaTable(self._uri, storage_options=self._options)
                self._check_is_the_same(table)
                self._table, self._log = table, DeltaLog(self._files)
        except TableNotFoundError as error:
            if self._table is not None:
                raise TableError(f"{self} was dropped; start the query again") from error
            return None
        except (DeltaError, OSError) as error:
            cure = ""
            if damage := damaged_checkpoint(self._files):
                cure = (
                    f". {damage}. Restore the file; or, if the log has all commits after an older"
                    " checkpoint, or from 0 on, delete this one and _last_checkpoint"
                )
            raise TableError(
                f"{self} cannot be opened: {self._line(error)}{cure}"
            ) from self._secrets.cause(error)
        protocol = self._table.protocol()
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        is_merged = self.upsert is not None
        version = protocol.min_writer_version
        check_features(version, features, table=str(self), is_merged=is_merged)
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
            found = [*pool.map(self._files.get_file_info, (piece.name for piece in pieces))]
        for each in found:
            if each.type is fs.FileType.NotFound:
                raise TableError(
                    f"{self} lacks {each.path}, which a task has written: the path has to be one"
                    " that the driver and all executors share, and spark-groups table vacuum needs"
                    " an age that is longer than any batch takes; start the query again"
                )

    def _columns(self) -> TableColumns:
        """Return the columns of the table, to which rows are fitted."""
        stored = self._stored_columns()
        return stored if self.upsert is None else self.upsert.staged(stored)

    def _stored_columns(self) -> TableColumns:
        """Return the columns of the table.

        Raises:
            TableError: It has columns that this writer does not compute or check.
        """
        if self._table is None:
            return TableColumns(
                str(self), _RULES, partition_by=self._partition_by, evolves=self._evolves
            )
        fields = json.loads(self._table.schema().to_json())["fields"]
        unchecked = [
            f"{field_['name']} is not null or computed ({mark})"
            for field_ in fields
            for mark in _UNCHECKED
            if mark in field_["metadata"]
        ]
        if unchecked:
            raise TableError(
                f"{self} has columns that this writer does not check: {', '.join(unchecked)}"
            )
        not_written, lengths = {}, {}
        key = () if self.upsert is None else self.upsert.merge_on
        for field_ in fields:
            kind = field_["metadata"].get(_TEXT_TYPE, "")
            if kind.startswith("char(") and field_["name"] in key:
                raise TableError(
                    f"{self} has {field_['name']} of merge_on as {kind}, which Spark fills with"
                    " blanks and this writer does not, so a key could have two rows: create the"
                    f" table again with {field_['name']} as varchar or string"
                )
            if '"variant"' in json.dumps(field_["type"]):
                not_written[field_["name"]] = "is variant, which this writer does not write"
            elif length := _TEXT_LENGTH.fullmatch(kind):
                lengths[field_["name"]] = int(length[1])
            elif kind:
                not_written[field_["name"]] = f"is {kind}, whose lengths this writer does not check"
        found = self._table.schema().to_arrow()
        names = [each for each in found.names if each not in not_written]
        schema = pa.schema([self._arrow_field(found.field(name)) for name in names])
        has_ntz = _NTZ in (self._table.protocol().writer_features or ())
        return TableColumns(
            str(self),
            _RULES if has_ntz else _RULES_WITHOUT_NTZ,
            table_schema(schema),
            tuple(self._table.metadata().partition_columns),
            not_written=not_written,
            text_length_max=lengths,
            evolves=self._evolves,
        )

    def _arrow_field(self, each: Any) -> pa.Field:
        """Return a column of the table.

        Raises:
            TableError: Arrow does not read it.
        """
        try:
            return pa.field(each)
        except (pa.ArrowException, ValueError) as error:
            raise TableError(f"{self} has the column {each.name}, but {error}") from error

    def _actions(self, pieces: Sequence[Piece]) -> list[AddAction]:
        """Return the actions that add files to the log.

        Raises:
            TableError: Another writer has created the table since, with other partition columns.
        """
        columns = self._columns().partition_by
        now_ms = int(time.time() * 1000)
        actions = []
        for piece in pieces:
            details = FileDetails.of(piece)
            if set(details.partition_values) != set(columns):
                raise TableError(
                    f"{self} was created by another writer with partition_by={list(columns)}, but"
                    f" {piece.name} was written with"
                    f" partition_by={list(details.partition_values)}: give the same columns to"
                    " every application that writes the table, and start the query again"
                )
            self._warn_of_empty_text(details.partition_values)
            actions.append(
                AddAction(
                    path=piece.name,
                    size=piece.size_bytes,
                    # Delta's log has empty text for null.
                    partition_values={
                        name: text or None for name, text in details.partition_values.items()
                    },
                    modification_time=now_ms,
                    data_change=True,
                    stats=details.statistics,
                )
            )
        return actions

    def _warn_of_empty_text(self, values: Mapping[str, str | None]) -> None:
        for name, text in values.items():
            if text == "" and name not in self._warned_of:
                self._warned_of.add(name)
                logger.warning(
                    "%s: rows with an empty text in the partition column %s have null there:"
                    " Delta's log does not tell these apart",
                    self,
                    name,
                )

    def _create(
        self,
        actions: list[AddAction],
        schema: pa.Schema,
        properties: deltalake.CommitProperties,
    ) -> None:
        try:
            create_table_with_add_actions(
                self._uri,
                deltalake.Schema.from_arrow(schema),
                actions,
                mode="error",
                partition_by=list(self._partition_by),
                configuration={_INTERVAL: str(CHECKPOINT_INTERVAL)},
                storage_options=self._options,
                commit_properties=properties,
            )
        except (DeltaError, OSError) as error:
            if not deltalake.DeltaTable.is_deltatable(self._uri, self._options):
                raise TableError(
                    f"{self} cannot be created: {self._line(error)}"
                ) from self._secrets.cause(error)
            raise TableChangedError(f"another writer has created {self}") from error
        self._table = deltalake.DeltaTable(self._uri, storage_options=self._options)
        self._first_id = str(self._table.metadata().id)

    def _first_files(
        self, attempt: Attempt, changes: pa.Table | None, schema: pa.Schema
    ) -> list[Piece]:
        """Return the files of a new table that has the rows of a batch which are not deleted."""
        assert self.upsert is not None
        if changes is None:
            return []
        kept = changes.filter(pc.invert(changes[self.upsert.delete_when]))
        columns, settings = self._stored_columns(), (self._target_file_bytes, self._compression)
        writer = ParquetTaskWriter(self._files, "", attempt.name, columns, *settings)
        # No other try of this commit has the name: the table may have accepted that one.
        name = f"first-{uuid.uuid4().hex[:12]}"
        rows = kept.select(schema.names).cast(schema)
        return [each for each in writer.write(rows.to_batches(), name) if each.rows]

    def _changes(
        self, staged: Sequence[Piece], upsert: Upsert, columns: TableColumns
    ) -> pa.Table | None:
        """Return the last row of each key of a batch.

        Raises:
            TableError: The store does not return staged rows, or offsets do not order them.
        """
        try:
            return changes_of(self._files, staged, upsert, columns)
        except OSError as error:
            raise TableError(
                f"staged rows of {self} cannot be read: {self._line(error)}"
            ) from self._secrets.cause(error)

    def _change(
        self,
        actions: list[AddAction],
        changes: pa.Table | None,
        properties: deltalake.CommitProperties,
    ) -> None:
        assert self._table is not None
        with self._refusals(self._table):
            if (
                changes is not None
                and self.upsert is not None
                and merged(self._table, changes, self.upsert, properties, self._compression.upper())
            ):
                return
            self._table.create_write_transaction(
                [*actions],
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
            )

    def _add_columns(self, new: Sequence[pa.Field]) -> None:
        """Add columns in a commit before that of the rows: the library has none for both.

        If the next commit is refused, the table has columns without values, which lose nothing.
        """
        assert self._table is not None
        with self._refusals(self._table):
            self._table.alter.add_columns(
                [deltalake.Field.from_arrow(each) for each in new],
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
            )
        version = self._log.version + 1
        self._log.advance(version)
        self._write_checkpoint(version)
        logger.info("%s has new columns: %s", self, ", ".join(map(str, new)))

    @contextmanager
    def _refusals(self, table: deltalake.DeltaTable) -> Iterator[None]:
        """Raise the errors of a commit as those of a table.

        Raises:
            TableChangedError: Another writer has committed.
            TableError: There is another cause.
        """
        following = table.version() + 1
        try:
            yield
        except (DeltaError, OSError) as error:
            # The library raises one error for a commit that came second, and for any other cause.
            if self._log.has_commit(following):
                raise TableChangedError(
                    f"another writer has committed to {self}"
                ) from self._secrets.cause(error)
            raise TableError(
                f"{self} was not changed, and no other writer has committed: {self._line(error)}"
            ) from self._secrets.cause(error)

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
            logger.warning(
                "%s: no checkpoint of version %d was written: %s", self, version, self._line(error)
            )

    def _line(self, error: Exception) -> str:
        """Return what an error says, without a stack of the library and without secrets."""
        return self._secrets.line(str(error).split("\n", 1)[0])
