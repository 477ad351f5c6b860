"""Which partition of `__consumer_offsets` a group belongs to."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.assignors.java_order import signed, string_hash

_INT_MIN: Final = -(2**31)


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition whose leader coordinates a group.

    Source: GroupCoordinatorService.partitionFor, which is Utils.abs of the id's hash code.

    Args:
        group_id: The group.
        partitions: How many partitions the offsets topic has.
    """
    code = signed(string_hash(group_id))
    # The least number has no opposite in 32 bits.
    return (0 if code == _INT_MIN else abs(code)) % partitions
