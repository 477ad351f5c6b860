"""Groups hash onto offsets partitions as Java does."""

from __future__ import annotations

import pytest

from spark_groups.coordinator.sharding import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("hello world", 1794106052),
        ("\N{GRINNING FACE}", 1772899),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_java_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_partitions_are_never_negative() -> None:
    # Utils.abs gives 0 for the least integer, which has no positive counterpart.
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert {partition_for(f"group-{each}", 5) for each in range(100)} == set(range(5))
