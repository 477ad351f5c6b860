"""An Iceberg catalog of a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import DataScan, Table

from spark_groups.spark.tables.iceberg import FENCE, IcebergTable, iceberg_table
from tests.spark.tables.batches_setup import GROUP, reads, rows
from tests.spark.tables.places import Place

NAME = "lake.rows"


@dataclass(frozen=True)
class Lake(Place):
    """A catalog with the table of a test.

    Args:
        name: The catalog's name.
        properties: Its properties for `load_catalog`.
        identifier: The table.
        partition_by: The values by which it is partitioned.
    """

    name: str
    properties: Mapping[str, str]
    identifier: str = NAME
    partition_by: tuple[str, ...] = ()
    shown = "the Iceberg table"
    second_version = 2

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

    def fenced(self, **more: Any) -> IcebergTable:
        more = {"partition_by": self.partition_by, **more}
        return iceberg_table(self.identifier, self.name, self.properties, **more)

    def table(self) -> Table:
        """Return the current table, loaded by the library."""
        return self.catalog().load_table(self.identifier)

    def rows(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def create(self, schema: pa.Schema) -> None:
        catalog = self.catalog()
        catalog.create_namespace(self.identifier.partition(".")[0])
        table = catalog.create_table(self.identifier, schema)
        if self.partition_by:
            with table.update_spec() as spec:
                spec.add_identity("partition")

    def columns(self) -> list[str]:
        return list(self.rows().schema.names)

    def values(self, *names: str, from_offset: int = 0) -> list[tuple[Any, ...]]:
        found = self._scan(from_offset).to_arrow()
        return [*zip(*(found[each].to_pylist() for each in names), strict=True)]

    def staged(self) -> list[str]:
        if self.catalog().table_exists(self.identifier):
            location = self.table().location()
            taken = {Path(each).name for each in self.files()}
        else:
            location = f"{self.properties['warehouse']}/{self.identifier.replace('.', '/')}"
            taken = set()
        data = Path(urlsplit(location).path) / "data"
        found = [each for each in data.rglob("*.parquet") if each.name not in taken]
        return sorted(str(each.relative_to(data)) for each in found)

    def files(self, from_offset: int = 0) -> list[str]:
        return [each.file.file_path for each in self._scan(from_offset).plan_files()]

    def _scan(self, from_offset: int) -> DataScan:
        return self.table().scan(*([f"offset >= {from_offset}"] if from_offset else []))

    def foreign_append(self, offset: int = 1000) -> None:
        """Add a row as another application does, of a partition that tests do not use."""
        batch = rows(reads(offset, offset + 1, partition=9))
        self.table().append(pa.Table.from_batches([batch]))

    def restore_first(self) -> None:
        self.set_back(self.table().snapshots()[0].snapshot_id)

    def set_back(self, snapshot_id: int) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def fence_of(properties: Any, group_id: str = GROUP) -> str | None:
    """Return a group's fence in the properties of a table or in a snapshot's summary."""
    return properties.get(f"{FENCE}{group_id}")
