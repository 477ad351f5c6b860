"""Sums over a group."""

from __future__ import annotations

from spark_groups.observation.totals import group_totals
from spark_groups.observation.views import view_group
from tests.observation.groups import ONE, TWO, member, read

VIEW = view_group(
    read(
        member(ONE, [0, 1], [0]),
        member(TWO, [], [1]),
        partitions=4,
        committed={0: 1, 1: 5},
        ends={0: 10, 1: 5},
    )
)


def test_what_is_known_is_summed_and_what_is_not_is_counted() -> None:
    totals = group_totals(VIEW.members, VIEW.partitions)
    assert totals == VIEW.totals
    assert (totals.members, totals.partitions) == (2, 4)
    assert (totals.assigned_partitions, totals.unassigned_partitions) == (2, 2)
    assert (totals.moving_partitions, totals.lag, totals.unknown_lag_partitions) == (1, 9, 2)


def test_without_any_known_lag_the_sum_is_unknown() -> None:
    unknown = tuple(each for each in VIEW.partitions if each.lag is None)
    assert group_totals((), unknown).lag is None
    assert group_totals((), ()).lag == 0
