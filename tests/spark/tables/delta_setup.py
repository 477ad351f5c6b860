"""A Delta table of a test, and a driver that writes to it step by step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.spark.tables.delta import DeltaTable, delta_table
from tests.spark.tables.batches_setup import GROUP
from tests.spark.tables.places import Place, Writer


@dataclass(frozen=True)
class DeltaPlace(Place):
    """A directory with a Delta table.

    Args:
        path: The directory.
        partition_by: The columns by which it is partitioned.
        merge_on: The columns by which rows replace others.
    """

    path: Path
    partition_by: tuple[str, ...] = ()
    merge_on: tuple[str, ...] = ()
    shown = "the Delta table file://"
    created_by_another = "another writer has created"
    second_version = 1

    def fenced(self, **more: Any) -> DeltaTable:
        given = {"partition_by": self.partition_by, "merge_on": self.merge_on, **more}
        return delta_table(self.path, **given)

    def create(self, schema: pa.Schema) -> None:
        columns = deltalake.Schema.from_arrow(schema)
        deltalake.DeltaTable.create(self.path, columns, partition_by=[*self.partition_by])

    def columns(self) -> list[str]:
        return list(deltalake.DeltaTable(self.path).to_pyarrow_table().schema.names)

    def values(self, *names: str, from_offset: int = 0) -> list[tuple[Any, ...]]:
        dataset = deltalake.DeltaTable(self.path).to_pyarrow_dataset()
        found = dataset.to_table([*names], filter=_behind(from_offset))
        return [*zip(*(found[each].to_pylist() for each in names), strict=True)]

    def staged(self) -> list[str]:
        is_there = deltalake.DeltaTable.is_deltatable(str(self.path))
        if self.merge_on and is_there:
            # Files that a merge has replaced are in earlier versions.
            return [each.name for each in self.fenced().orphans(0)]
        taken = {Path(each).name for each in self.files()} if is_there else set()
        found = [each.relative_to(self.path) for each in self.path.rglob("*.parquet")]
        return sorted(
            str(each) for each in found if each.name not in taken and each.parts[0] != "_delta_log"
        )

    def files(self, from_offset: int = 0) -> list[str]:
        dataset = deltalake.DeltaTable(self.path).to_pyarrow_dataset()
        fragments = dataset.get_fragments(filter=_behind(from_offset))
        return [str(self.path / each.path) for each in fragments]

    def restore_first(self) -> None:
        deltalake.DeltaTable(self.path).restore(0)


def _behind(offset: int) -> pc.Expression | None:
    return pc.field("offset") >= offset if offset else None


class DeltaWriter(Writer):
    """A driver that writes batches to a Delta table, one step at a time.

    Args:
        path: The table.
        group_id: The driver's group.
    """

    def __init__(self, path: Path, group_id: str = GROUP) -> None:
        super().__init__(DeltaPlace(path), group_id)


def offsets(path: Path, partition: int = 0) -> list[int]:
    """Return the offsets of the table's rows."""
    return DeltaPlace(path).offsets(partition)


def entries(path: Path, group_id: str = GROUP) -> dict[FenceKey, Entry]:
    """Return the table's entries, read by a new table object."""
    return DeltaPlace(path).entries(group_id)
