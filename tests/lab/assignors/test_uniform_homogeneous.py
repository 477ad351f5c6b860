"""Exact targets where all members subscribe to the same topics."""

from __future__ import annotations

from spark_groups.lab.assignors.uniform_homogeneous import assign
from tests.lab.assignors.groups import group, has, member


def test_partitions_are_given_out_topic_by_topic() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=3, u=2)
    assert assign(spec, stable_extras=True) == {"a": has(t=[0, 1]), "b": has(t=[2], u=[0, 1])}
    assert assign(spec, stable_extras=False) == {"a": has(t=[0, 1, 2]), "b": has(u=[0, 1])}


def test_the_partition_too_many_stays_only_where_extras_are_stable() -> None:
    """KAFKA-18688: the member that has it comes second."""
    spec = group({"a": member("t", target=has(t=[0])), "b": member("t", target=has(t=[1, 2]))}, t=3)
    assert assign(spec, stable_extras=True) == {"a": has(t=[0]), "b": has(t=[1, 2])}
    assert assign(spec, stable_extras=False) == {"a": has(t=[0, 2]), "b": has(t=[1])}


def test_what_is_not_subscribed_any_more_goes() -> None:
    spec = group({"a": member("u", target=has(t=[0, 1], u=[0]))}, t=2, u=2)
    assert assign(spec, stable_extras=True) == {"a": has(u=[0, 1])}


def test_more_members_than_partitions() -> None:
    spec = group({each: member("t") for each in "abc"}, t=2)
    assert assign(spec, stable_extras=True) == {"a": has(), "b": has(t=[0]), "c": has(t=[1])}


def test_who_has_too_many_gives_up_the_last_of_a_hash_set() -> None:
    """A HashSet of three numbers has 16 buckets: 16 and 32 come before 1."""
    spec = group(
        {
            "a": member("t", target=has(t=[1, 16, 32])),
            "b": member("t", target=has(t=[each for each in range(33) if each not in (1, 16, 32)])),
            **{f"c{each}": member("t") for each in range(15)},
        },
        t=33,
    )
    assert assign(spec, stable_extras=True)["a"] == has(t=[16, 32])
