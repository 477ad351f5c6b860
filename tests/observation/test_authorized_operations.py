"""Operations by their bits."""

from __future__ import annotations

import pytest

from spark_groups.observation.authorized_operations import OPERATIONS, authorized_operations
from spark_groups.protocol.messages import UNKNOWN_AUTHORIZED_OPERATIONS


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (UNKNOWN_AUTHORIZED_OPERATIONS, None),
        (0, ()),
        (1 << 3 | 1 << 6 | 1 << 8, ("READ", "DELETE", "DESCRIBE")),
        # A bit of a newer Kafka, and the bits of UNKNOWN, ANY and ALL, which are no operations.
        (1 << 30 | 0b111 | 1 << 8, ("DESCRIBE",)),
        (sum(1 << bit for bit in OPERATIONS), tuple(OPERATIONS.values())),
    ],
)
def test_bits_are_kafkas_names(bits: int, names: tuple[str, ...] | None) -> None:
    assert authorized_operations(bits) == names
