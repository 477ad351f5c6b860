"""Rows that an application wrote, as Spark reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from workshop.parts.applications import Application


def rows_written(
    application: Application, columns: Sequence[str] = ("partition", "offset")
) -> list[tuple[Any, ...]]:
    """Read an application's output through its own log, as Spark does."""
    log = application.output / "_spark_metadata"
    names = {
        line.split('"path":"', 1)[1].split('"', 1)[0]
        for path in log.iterdir()
        if not path.name.startswith(".")
        for line in path.read_text().splitlines()[1:]
    }
    rows: list[tuple[Any, ...]] = []
    for name in names:
        table = pq.read_table(name.removeprefix("file://"), columns=list(columns))
        rows += zip(*(table[column].to_pylist() for column in columns), strict=True)
    return rows
