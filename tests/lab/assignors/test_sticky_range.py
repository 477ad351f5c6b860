"""Exact ranges of the KIP's reading: what a member has stays up to its share."""

from __future__ import annotations

from spark_groups.lab.assignors.range_assignor import RangeAssignor
from spark_groups.lab.assignors.sticky_range import sticky
from tests.lab.assignors.groups import group, has, member


def test_the_first_cut_is_that_of_kafka_4() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=3, u=3)
    assert RangeAssignor(sticky).assign(spec) == {
        "a": has(t=[0, 1], u=[0, 1]),
        "b": has(t=[2], u=[2]),
    }


def test_the_lowest_are_kept_and_topics_stay_cut_alike() -> None:
    had = range(6)
    spec = group({"b": member("t", "u", target=has(t=had, u=had)), "a": member("t", "u")}, t=6, u=6)
    assert RangeAssignor(sticky).assign(spec) == {
        "b": has(t=[0, 1, 2], u=[0, 1, 2]),
        "a": has(t=[3, 4, 5], u=[3, 4, 5]),
    }


def test_the_partition_too_many_stays() -> None:
    spec = group({"a": member("t", target=has(t=[2])), "b": member("t", target=has(t=[0, 1]))}, t=3)
    assert RangeAssignor(sticky).assign(spec) == {"a": has(t=[2]), "b": has(t=[0, 1])}
