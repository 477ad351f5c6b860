"""A vacuum of a local table deletes nothing outside its directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

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
