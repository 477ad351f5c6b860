"""Iceberg tables of tests: a catalog of their own, and a driver that writes step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from spark_groups.spark.tables.fence import Entry, FenceKey
from spark_groups.spark.tables.iceberg import IcebergTable, iceberg_table
from tests.spark.tables.test_delta import GROUP, Writer

NAME = "lake.rows"


@dataclass(frozen=True)
class Lake:
    """A catalog, and how it is loaded.

    Args:
        name: The catalog's name.
        properties: How it is reached.
        identifier: The table that tests write to.
    """

    name: str
    properties: Mapping[str, str]
    identifier: str = NAME

    @classmethod
    def at(cls, directory: Path, uri: str | None = None) -> Lake:
        """Return one whose files are in a directory; its database, too, if no URI is given."""
        directory.mkdir(parents=True, exist_ok=True)
        properties = {
            "type": "sql",
            "uri": uri or f"sqlite:///{directory}/catalog.db",
            "warehouse": (directory / "warehouse").as_uri(),
        }
        return cls(str(directory), properties)

    def catalog(self) -> Catalog:
        return load_catalog(self.name, **self.properties)

    def fenced(self) -> IcebergTable:
        return iceberg_table(self.identifier, self.name, self.properties)

    def table(self) -> Table:
        """Return the table as the library reads it now."""
        return self.catalog().load_table(self.identifier)

    def rows(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the offsets of the rows that the table has."""
        rows = self.rows()
        found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        return sorted(offset for index, offset in found if index == partition)

    def entries(self, group_id: str = GROUP) -> dict[FenceKey, Entry]:
        """Return the table's fence, read anew."""
        return dict(self.fenced().read(group_id).entries)

    def set_back(self, snapshot_id: int) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


class LakeWriter(Writer):
    """A driver that writes batches to an Iceberg table, one step at a time.

    Args:
        lake: Where the table is.
        group_id: Its group.
    """

    def __init__(self, lake: Lake, group_id: str = GROUP) -> None:
        self.table = lake.fenced()
        self.group_id = group_id
        self._batch = 0
