"""An Iceberg catalog of a test, and a driver that writes step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from spark_groups.spark.tables.fence import Entry, FenceKey
from spark_groups.spark.tables.iceberg import FENCE, IcebergTable, iceberg_table
from spark_groups.types import OffsetRange
from tests.spark.tables.delta_setup import GROUP, TOPIC, Writer, rows

NAME = "lake.rows"


@dataclass(frozen=True)
class Lake:
    """A catalog with the table of a test.

    Args:
        name: The catalog's name.
        properties: Its properties for `load_catalog`.
        identifier: The table.
    """

    name: str
    properties: Mapping[str, str]
    identifier: str = NAME

    @classmethod
    def at(cls, directory: Path, uri: str | None = None) -> Lake:
        """Return a catalog whose files are in a directory; without a URI, its database also is."""
        directory.mkdir(parents=True, exist_ok=True)
        properties = {
            "type": "sql",
            "uri": uri or f"sqlite:///{directory}/catalog.db",
            "warehouse": (directory / "warehouse").as_uri(),
        }
        return cls(str(directory), properties)

    @classmethod
    def on_postgres(cls, directory: Path, dsn: str) -> Lake:
        """Return a catalog in PostgreSQL, with the connection string of libpq."""
        given = dict(part.split("=", 1) for part in dsn.split())
        place = f"{given['user']}@/{given['dbname']}?host={given['host']}"
        return cls.at(directory, f"postgresql+psycopg://{place}")

    def catalog(self) -> Catalog:
        return load_catalog(self.name, **self.properties)

    def fenced(self) -> IcebergTable:
        return iceberg_table(self.identifier, self.name, self.properties)

    def table(self) -> Table:
        """Return the current table, loaded by the library."""
        return self.catalog().load_table(self.identifier)

    def rows(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the offsets of the table's rows."""
        rows = self.rows()
        found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        return sorted(offset for index, offset in found if index == partition)

    def foreign_append(self, offset: int = 1000) -> None:
        """Add a row as another application does, of a partition that tests do not use."""
        batch = rows(OffsetRange(TOPIC, "departures", 9, offset, offset + 1))
        self.table().append(pa.Table.from_batches([batch]))

    def entries(self, group_id: str = GROUP) -> dict[FenceKey, Entry]:
        """Return the table's entries, read by a new table object."""
        return dict(self.fenced().read(group_id).entries)

    def set_back(self, snapshot_id: int) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def fence_of(properties: Any, group_id: str = GROUP) -> str | None:
    """Return a group's fence in the properties of a table or in a snapshot's summary."""
    return properties.get(f"{FENCE}{group_id}")


class LakeWriter(Writer):
    """A driver that writes batches to an Iceberg table, one step at a time.

    Args:
        lake: The catalog with the table.
        group_id: The driver's group.
    """

    def __init__(self, lake: Lake, group_id: str = GROUP) -> None:
        self.table = lake.fenced()
        self.group_id = group_id
        self._batch = 0
