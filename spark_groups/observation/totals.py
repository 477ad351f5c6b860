"""Sums over a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_groups.observation.views import MemberView, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotals:
    """Sums over a group.

    Args:
        members: Its members.
        partitions: All its partitions.
        assigned_partitions: Those that a member has.
        unassigned_partitions: Those that no member has.
        moving_partitions: Those that will have another owner.
        lag: The sum of all lags that are known; None if none is.
        unknown_lag_partitions: Partitions whose lag is not known.
    """

    members: int
    partitions: int
    assigned_partitions: int
    unassigned_partitions: int
    moving_partitions: int
    lag: int | None
    unknown_lag_partitions: int


def group_totals(
    members: tuple[MemberView, ...], partitions: tuple[PartitionView, ...]
) -> GroupTotals:
    """Return the sums over a group.

    Args:
        members: Its members.
        partitions: Its partitions.
    """
    lags = [each.lag for each in partitions if each.lag is not None]
    assigned = sum(each.owner is not None for each in partitions)
    return GroupTotals(
        members=len(members),
        partitions=len(partitions),
        assigned_partitions=assigned,
        unassigned_partitions=len(partitions) - assigned,
        moving_partitions=sum(each.moves_to is not None for each in partitions),
        lag=sum(lags) if lags or not partitions else None,
        unknown_lag_partitions=len(partitions) - len(lags),
    )
