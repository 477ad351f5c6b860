"""Exact targets of the uniform assignor, where members subscribe alike and where not."""

from __future__ import annotations

import pytest

from group_lab.assignors.assignor import AssignorError
from group_lab.assignors.uniform import (
    Balancer,
    UniformAssignor,
    heterogeneous_targets,
    homogeneous_targets,
)
from lab.tests.assignors.groups import group, has, member


def test_members_with_the_same_topics_share_them_all() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=1, u=1)
    assert UniformAssignor(stable_extras=True).assign(spec) == {"a": has(t=[0]), "b": has(u=[0])}


def test_members_with_different_topics_get_their_own() -> None:
    spec = group({"a": member("t"), "b": member("u")}, t=1, u=3)
    targets = UniformAssignor(stable_extras=True).assign(spec)
    assert targets == {"a": has(t=[0]), "b": has(u=[0, 1, 2])}


def test_partitions_are_given_out_topic_by_topic() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=3, u=2)
    assert homogeneous_targets(spec, stable_extras=True) == {
        "a": has(t=[0, 1]),
        "b": has(t=[2], u=[0, 1]),
    }
    assert homogeneous_targets(spec, stable_extras=False) == {
        "a": has(t=[0, 1, 2]),
        "b": has(u=[0, 1]),
    }


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    """The leader of a classic group can assign one, with which the group is converted."""
    for topics in (("t",), ("t", "u")):
        spec = group({"a": member("t", target=has(t=[3])), "b": member(*topics)}, t=3, u=1)
        with pytest.raises(AssignorError, match="does not exist"):
            UniformAssignor(stable_extras=True).assign(spec)


def test_surplus_partitions_stay_only_with_stable_extras() -> None:
    """KAFKA-18688: the member that has it comes second."""
    spec = group({"a": member("t", target=has(t=[0])), "b": member("t", target=has(t=[1, 2]))}, t=3)
    assert homogeneous_targets(spec, stable_extras=True) == {"a": has(t=[0]), "b": has(t=[1, 2])}
    assert homogeneous_targets(spec, stable_extras=False) == {"a": has(t=[0, 2]), "b": has(t=[1])}


def test_unsubscribed_partitions_are_removed() -> None:
    spec = group({"a": member("u", target=has(t=[0, 1], u=[0]))}, t=2, u=2)
    assert homogeneous_targets(spec, stable_extras=True) == {"a": has(u=[0, 1])}


def test_more_members_than_partitions() -> None:
    spec = group({each: member("t") for each in "abc"}, t=2)
    assert homogeneous_targets(spec, stable_extras=True) == {
        "a": has(),
        "b": has(t=[0]),
        "c": has(t=[1]),
    }


def test_a_member_above_its_quota_loses_the_last_of_a_hash_set() -> None:
    """A HashSet of three numbers has 16 buckets: 16 and 32 come before 1."""
    spec = group(
        {
            "a": member("t", target=has(t=[1, 16, 32])),
            "b": member("t", target=has(t=[each for each in range(33) if each not in (1, 16, 32)])),
            **{f"c{each}": member("t") for each in range(15)},
        },
        t=33,
    )
    assert homogeneous_targets(spec, stable_extras=True)["a"] == has(t=[16, 32])


def test_partitions_go_to_the_least_loaded_subscriber() -> None:
    spec = group({"a": member("t"), "b": member("t", "u"), "c": member("u")}, t=2, u=4)
    targets = heterogeneous_targets(spec)
    assert targets == {"a": has(t=[0, 1]), "b": has(u=[0, 2]), "c": has(u=[1, 3])}


def test_the_last_partitions_of_the_most_loaded_move() -> None:
    spec = group({"a": member("t", target=has(t=[0, 1, 2, 3])), "b": member("t", "u")}, t=4, u=0)
    assert heterogeneous_targets(spec) == {"a": has(t=[0, 1]), "b": has(t=[2, 3])}


def test_overlapping_subscriptions_may_stay_two_apart() -> None:
    """The example in UniformHeterogeneousAssignmentBuilder: 9, 10 and 11."""
    spec = group(
        {
            "a": member("t", target=has(t=range(9))),
            "b": member("t", "u", target=has(t=range(9, 15), u=range(4))),
            "c": member("u", target=has(u=range(4, 15))),
        },
        t=15,
        u=15,
    )
    assert [len(each) for each in heterogeneous_targets(spec).values()] == [9, 10, 11]


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
    targets = heterogeneous_targets(spec)
    assert targets == {"a": has(u=range(9)), "b": has(t=[0, 1, 2]), "c": has(t=[3, 4])}


def test_the_least_loaded_get_level_by_level() -> None:
    balancer = Balancer([0, 2, 1], [0, 1, 2])
    assert balancer.imbalance == 2
    assert [balancer.next_least_loaded() for _ in range(6)] == [0, 0, 2, 0, 2, 1]


def test_the_most_loaded_give_level_by_level() -> None:
    balancer = Balancer([1, 3, 2], [0, 1, 2])
    assert [balancer.next_most_loaded() for _ in range(6)] == [1, 1, 2, 1, 2, 0]


def test_members_without_partitions_are_excluded() -> None:
    balancer = Balancer([1, 5, 3], [0, 1, 2])
    assert balancer.next_most_loaded() == 1
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() == 2
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() == 0
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() is None


def test_levels_that_differ_by_one_are_balanced() -> None:
    balancer = Balancer([0, 2], [0, 1])
    assert not balancer.is_balanced()
    balancer.next_most_loaded()
    balancer.next_least_loaded()
    assert not balancer.is_balanced()
    balancer.next_most_loaded()
    balancer.next_least_loaded()
    assert balancer.is_balanced()
