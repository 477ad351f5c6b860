"""The server-side assignors by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from group_lab.assignors.assignor import Assignor
from group_lab.assignors.range_assignor import RangeAssignor, contiguous, sticky
from group_lab.assignors.uniform import UniformAssignor


@lru_cache(4)
def assignors(*, stable_extras: bool, range_is_sticky: bool) -> Mapping[str, Assignor]:
    """Return the server-side assignors by name.

    Args:
        stable_extras: Uniform keeps surplus partitions in place (from 4.0.1 on).
        range_is_sticky: Range considers current targets (the KIP; not Kafka 4).
    """
    found: tuple[Assignor, ...] = (
        UniformAssignor(stable_extras),
        RangeAssignor(sticky if range_is_sticky else contiguous),
    )
    return {each.name: each for each in found}
