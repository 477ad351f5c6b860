"""A vacuum of a local table deletes nothing outside its directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_groups.errors import TableError
from spark_groups.fence.compare import Decision
from spark_groups.spark.tables.table import PREFIX, Attempt, FencedTable
from workshop.parts.stores import DeltaStore, IcebergStore


def written(table: FencedTable) -> None:
    state, attempt = table.read("g"), Attempt("g", 0, "a")
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    table.commit(attempt, [*table.task_writer(attempt).write([batch], "0")], Decision(), state)


@pytest.mark.parametrize("kind", ["Delta", "Iceberg"])
def test_vacuum_follows_no_link(tmp_path: Path, kind: str) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    store = DeltaStore(place) if kind == "Delta" else IcebergStore(place)
    table = store.table(())
    written(table)
    inside = place if kind == "Delta" else place / "lake" / "t" / "data"
    assert inside.is_dir()
    outside.mkdir()
    for each in (outside / "a", outside / f"{PREFIX}c"):
        each.write_text("precious")
    (inside / f"{PREFIX}directory").symlink_to(outside)
    (inside / f"{PREFIX}file").symlink_to(outside / "a")
    (inside / f"{PREFIX}own").write_text("rows")
    found = table.orphans(0)
    assert [each.name for each in found] == [f"{PREFIX}own"]
    # A link that takes the place of an orphan after the look.
    (inside / f"{PREFIX}own").unlink()
    (inside / f"{PREFIX}own").symlink_to(outside / "a")
    table.remove(found)
    assert not (inside / f"{PREFIX}own").is_symlink()
    assert {each.read_text() for each in outside.iterdir()} == {"precious"}


def test_vacuum_of_delta_reads_a_checkpoint_that_names_its_own_files(tmp_path: Path) -> None:
    table, log = DeltaStore(tmp_path).table(()), tmp_path / "_delta_log"
    for _ in range(12):
        written(table)
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for each in log.glob("*.json"):
        if each.name < checkpoint.name:
            # Spark deletes old commits: only the checkpoint names their files.
            each.unlink()
    (tmp_path / f"{PREFIX}own").write_text("rows")
    assert [each.name for each in table.orphans(0)] == [f"{PREFIX}own"]
    actions = parquet.read_table(checkpoint)
    sidecars = pa.array(
        [{"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1}] * actions.num_rows,
        actions.schema.field("sidecar").type,
    )
    index = actions.schema.get_field_index("sidecar")
    parquet.write_table(actions.set_column(index, "sidecar", sidecars), checkpoint)
    with pytest.raises(TableError, match="in sidecar files, which this command does not read"):
        table.orphans(0)
