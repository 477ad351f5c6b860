"""Groups hash onto offsets partitions as Java does."""

from __future__ import annotations

from spark_groups.lab.coordinator.sharding import partition_for


def test_partitions_are_never_negative() -> None:
    # Utils.abs gives 0 for the least integer, which has no positive counterpart.
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert {partition_for(f"group-{each}", 5) for each in range(100)} == set(range(5))
