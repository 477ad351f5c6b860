"""Exact targets where members subscribe to different topics."""

from __future__ import annotations

from spark_groups.lab.assignors.uniform_heterogeneous import assign
from tests.lab.assignors.groups import group, has, member


def test_partitions_go_to_the_least_loaded_subscriber() -> None:
    spec = group({"a": member("t"), "b": member("t", "u"), "c": member("u")}, t=2, u=4)
    targets = assign(spec)
    assert targets == {"a": has(t=[0, 1]), "b": has(u=[0, 2]), "c": has(u=[1, 3])}


def test_the_last_partitions_of_the_most_loaded_move() -> None:
    spec = group({"a": member("t", target=has(t=[0, 1, 2, 3])), "b": member("t", "u")}, t=4, u=0)
    assert assign(spec) == {"a": has(t=[0, 1]), "b": has(t=[2, 3])}


def test_overlapping_subscriptions_may_stay_two_apart() -> None:
    """UniformHeterogeneousAssignmentBuilder says so itself: 9, 10 and 11."""
    spec = group(
        {
            "a": member("t", target=has(t=range(9))),
            "b": member("t", "u", target=has(t=range(9, 15), u=range(4))),
            "c": member("u", target=has(u=range(4, 15))),
        },
        t=15,
        u=15,
    )
    assert [len(each) for each in assign(spec).values()] == [9, 10, 11]


def test_a_subscriber_that_cannot_give_is_passed_over() -> None:
    spec = group(
        {
            "a": member("t", "u", target=has(u=range(9))),
            "b": member("t", target=has(t=range(5))),
            "c": member("t"),
        },
        t=5,
        u=9,
    )
    targets = assign(spec)
    assert targets == {"a": has(u=range(9)), "b": has(t=[0, 1, 2]), "c": has(t=[3, 4])}
