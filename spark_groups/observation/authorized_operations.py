"""What somebody may do with a group, as its coordinator says it: one bit for each operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_groups.protocol.messages import UNKNOWN_AUTHORIZED_OPERATIONS

OPERATIONS: Final[Mapping[int, str]] = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""Kafka's names by their bit (org.apache.kafka.common.acl.AclOperation)."""


def authorized_operations(bits: int) -> tuple[str, ...] | None:
    """Return Kafka's names of the operations, in its order; None if they are not known.

    Args:
        bits: The bit field of a description; bits that this version does not know are left out.
    """
    if bits == UNKNOWN_AUTHORIZED_OPERATIONS:
        return None
    return tuple(name for bit, name in OPERATIONS.items() if bits >> bit & 1)
