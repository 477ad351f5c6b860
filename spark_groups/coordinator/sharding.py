"""Which partition of `__consumer_offsets` a group belongs to."""

from __future__ import annotations


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition whose leader coordinates a group.

    Source: GroupCoordinatorService.partitionFor, which is Utils.abs of the id's hash code.

    Args:
        group_id: The group.
        partitions: How many partitions the offsets topic has.
    """
    code = java_hash(group_id)
    return (0 if code == -(2**31) else abs(code)) % partitions


def java_hash(text: str) -> int:
    """Return what String.hashCode gives: a signed 32-bit number over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    return code - 2**32 if code >= 2**31 else code
