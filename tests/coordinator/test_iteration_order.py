"""Facts printed by Java 17 and the classes of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from spark_groups.coordinator.iteration_order import timeline_order


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (3, (0, 2, 1)),
        (5, (3, 0, 2, 4, 1)),
        (12, (3, 10, 8, 0, 5, 2, 7, 4, 11, 9, 1, 6)),
    ],
)
def test_a_timeline_hash_map(count: int, expected: tuple[int, ...]) -> None:
    put = [f"member-{each}" for each in range(count)]
    assert timeline_order(put) == [f"member-{each}" for each in expected]
