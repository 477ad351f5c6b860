"""The merge of the last rows of a batch into a Delta table, in one commit with its fence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs, parquet

from spark_groups.errors import TableError
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.parquet_files import FileDetails
from spark_groups.spark.tables.table import Piece
from spark_groups.spark.tables.upserts import Upsert

_SOURCE: Final = "changes"
_TARGET: Final = "stored"


def changes_of(
    files: fs.FileSystem, pieces: Sequence[Piece], upsert: Upsert, columns: TableColumns
) -> pa.Table | None:
    """Return the last row of each key of a batch: its stored columns, and the mark of deletes.

    Args:
        files: The table's directory.
        pieces: The staged files of the batch.
        upsert: How rows change the table.
        columns: The columns in which they are staged.

    Raises:
        TableError: Offsets do not order the rows of a key.
    """
    staged = (
        # Without Arrow's own schema in a file, which fields may be null is read in another way.
        parquet.read_table(piece.name, filesystem=files).cast(FileDetails.of(piece).schema)
        for piece in pieces
    )
    found = upsert.changes(staged, columns.table)
    if found is None:
        return None
    mark = upsert.delete_when
    marks: Any = pa.repeat(False, found.num_rows)
    if mark in found.column_names:
        marks = pc.fill_null(found[mark], False)
    for index, each in enumerate(found.schema):
        if each.name in columns.partition_by and pa.types.is_string(each.type):
            # Delta's log has no empty text there, and the library writes it.
            values = pc.if_else(pc.equal(found[each.name], ""), None, found[each.name])
            found = found.set_column(index, each, values)
    return found.select(stored_schema(found.schema, columns).names).append_column(mark, marks)


def stored_schema(staged: pa.Schema, columns: TableColumns) -> pa.Schema:
    """Return the columns of a table without those that only staged rows have.

    Args:
        staged: The columns of staged rows.
        columns: The columns in which they are staged.
    """
    stored = (each for each in staged if each.name not in columns.hidden)
    return pa.schema([each.with_nullable(True) for each in stored])


def remove_staged(files: fs.FileSystem, pieces: Sequence[Piece]) -> None:
    """Delete the files of rows that a commit has merged; those that stay are found as orphans.

    Args:
        files: The table's directory.
        pieces: The files.
    """
    with suppress(OSError):
        for piece in pieces:
            files.delete_file(piece.name)


def merged(
    table: deltalake.DeltaTable,
    changes: pa.Table,
    upsert: Upsert,
    properties: deltalake.CommitProperties,
    compression: Any,
) -> bool:
    """Merge rows into a table; return whether there was a commit: there is none if nothing changes.

    Args:
        table: The table, at the version that the commit follows.
        changes: The last row of each key: its stored columns, and the mark of deletes.
        upsert: How they change the table.
        properties: The properties of the commit.
        compression: The compression of Parquet pages.

    Raises:
        DeltaError: The library cannot merge or commit.
        TableError: It would leave the old rows of a file in the table.
    """
    _check_names(table)
    newer, mark = "", f"{_SOURCE}.{_quoted(upsert.delete_when)}"
    if upsert.order_by is not None:
        old, new = (f"{side}.{_quoted(upsert.order_by)}" for side in (_TARGET, _SOURCE))
        newer = f" AND ({old} IS NULL OR {new} >= {old})"
    values = {
        _quoted(name): f"{_SOURCE}.{_quoted(name)}"
        for name in changes.column_names
        if name != upsert.delete_when
    }
    before = table.version()
    (
        table.merge(
            changes,
            " AND ".join(
                f"{_TARGET}.{each} = {_SOURCE}.{each}" for each in map(_quoted, upsert.merge_on)
            ),
            source_alias=_SOURCE,
            target_alias=_TARGET,
            # Streamed, the least and largest keys would not exclude any file.
            streamed_exec=False,
            writer_properties=deltalake.WriterProperties(compression=compression),
            commit_properties=properties,
        )
        .when_matched_delete(f"{mark}{newer}")
        .when_matched_update(values, f"NOT {mark}{newer}")
        .when_not_matched_insert(values, f"NOT {mark}")
        .execute()
    )
    return table.version() > before


def _check_names(table: deltalake.DeltaTable) -> None:
    """Refuse a table with files that the library does not remove (seen with deltalake 1.6.6).

    Spark writes a partition that is not ASCII into a file's name as it is; the library removes the
    file under another name, so that its rows stay beside those of the merge.

    Raises:
        TableError: There is such a file.
    """
    if not table.metadata().partition_columns:
        return
    names: Any = pa.table(table.get_add_actions())["path"]
    for name in names.filter(pc.invert(pc.string_is_ascii(names))).slice(0, 1).to_pylist():
        raise TableError(
            f"the Delta table {table.table_uri} has the file {name}, whose partition is not ASCII:"
            " a merge would leave its rows in the table beside the new ones. Write the rows into a"
            " table without this partition column, or into one that only write_table writes"
        )


def _quoted(name: str) -> str:
    """Return a column as an expression of deltalake names it."""
    return "`" + name.replace("`", "``") + "`"
