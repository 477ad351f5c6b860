"""A place of each kind of table, for tests of what all of them do."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.spark.tables.delta_setup import DeltaPlace
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import Place, PostgresPlace, SqlitePlace

KINDS = ("sqlite", "postgres", "delta", "iceberg")
BY_KEY = ("postgres by key", "delta by key")
"""Kinds of tables whose rows replace those with the same key: here, each record has its own."""
RECORD = ("topic", "partition", "offset")
LAKES = ("delta", "iceberg")
"""Tables of files, whose commits also have an order."""
PARTITIONED = ("partitioned delta", "partitioned iceberg")
CATALOGS = (
    "iceberg",
    "iceberg in postgres",
    pytest.param("iceberg by rest", marks=pytest.mark.long),
)
"""A catalog of each kind; the server of the third is downloaded."""


def place_of(kind: str, request: pytest.FixtureRequest, directory: Path) -> Place:
    """Return an empty place for a table.

    Args:
        kind: The kind of table, and of its catalog.
        request: The test, whose fixtures have the servers.
        directory: The directory of its files.
    """
    match kind:
        case "sqlite":
            return SqlitePlace(directory / "rows.db")
        case "postgres" | "postgres by key":
            return PostgresPlace(
                request.getfixturevalue("postgres"), RECORD if kind in BY_KEY else ()
            )
        case "delta" | "delta by key" | "partitioned delta":
            return DeltaPlace(
                directory / "my rows",
                ("partition",) if kind in PARTITIONED else (),
                RECORD if kind in BY_KEY else (),
            )
        case "iceberg in postgres":
            return Lake.on_postgres(directory, request.getfixturevalue("postgres"))
        case "iceberg by rest":
            properties = {"type": "rest", "uri": request.getfixturevalue("rest_catalog")}
            return Lake("rest", properties, f"lake_{uuid.uuid4().hex}.rows")
    by = ("partition", "day(timestamp)") if kind == "partitioned iceberg" else ()
    return replace(Lake.at(directory / "lake"), partition_by=by)
