"""A Delta table that takes the place of another one, as `CREATE OR REPLACE TABLE` makes it."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import deltalake


def replace_table(path: Path, *, keeps_rows: bool = False) -> str:
    """Commit another table to the log of a table; return its id.

    Args:
        path: The table.
        keeps_rows: Whether the new table has the rows of the old one.
    """
    table = deltalake.DeltaTable(path)
    metadata = table.metadata()
    now_ms = int(time.time() * 1000)
    made = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": metadata.partition_columns,
        "configuration": dict(metadata.configuration),
        "createdTime": now_ms,
    }
    removed = [
        {"remove": {"path": each, "deletionTimestamp": now_ms, "dataChange": True}}
        for each in ([] if keeps_rows else [Path(uri).name for uri in table.file_uris()])
    ]
    operation = {"timestamp": now_ms, "operation": "CREATE OR REPLACE TABLE"}
    actions = [{"commitInfo": operation}, {"metaData": made}, *removed]
    file = path / "_delta_log" / f"{table.version() + 1:020d}.json"
    file.write_text("".join(json.dumps(each) + "\n" for each in actions))
    return made["id"]
