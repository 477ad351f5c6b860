"""Exact ranges: the examples of Kafka's RangeAssignor, and the KIP's sticky reading."""

from __future__ import annotations

from dataclasses import replace

from group_lab.assignors.range_assignor import RangeAssignor, sticky
from lab.tests.assignors.groups import group, has, member


def test_topics_of_equal_size_are_cut_alike() -> None:
    spec = group({"m1": member("t", "u"), "m0": member("t", "u")}, t=3, u=3)
    assert RangeAssignor().assign(spec) == {
        "m0": has(t=[0, 1], u=[0, 1]),
        "m1": has(t=[2], u=[2]),
    }


def test_what_members_have_does_not_matter() -> None:
    spec = group(
        {"m0": member("t", target=has(t=[2])), "m1": member("t", target=has(t=[0, 1]))}, t=3
    )
    assert RangeAssignor().assign(spec) == {"m0": has(t=[0, 1]), "m1": has(t=[2])}


def test_static_members_come_first_by_their_instance_id() -> None:
    spec = group(
        {
            "a": member("t"),
            "b": member("t", instance_id="i2"),
            "c": member("t", instance_id="i1"),
        },
        t=4,
    )
    assert RangeAssignor().assign(spec) == {"c": has(t=[0, 1]), "b": has(t=[2]), "a": has(t=[3])}


def test_a_topic_is_cut_among_its_subscribers() -> None:
    spec = group({"a": member("t", "u"), "b": member("u"), "c": member("t")}, t=3, u=2)
    assert RangeAssignor().assign(spec) == {
        "a": has(t=[0, 1], u=[0]),
        "b": has(u=[1]),
        "c": has(t=[2]),
    }


def test_the_first_member_decides_in_a_homogeneous_group() -> None:
    """A coordinator may believe so although it is not (lab/tests/scenarios/no_subscription.txt)."""
    spec = replace(group({"a": member("t"), "b": member()}, t=3), is_homogeneous=True)
    assert RangeAssignor().assign(spec) == {"a": has(t=[0, 1]), "b": has(t=[2])}
    spec = replace(group({"a": member(), "b": member("t")}, t=3), is_homogeneous=True)
    assert RangeAssignor().assign(spec) == {"a": has(), "b": has()}


def test_the_first_cut_is_that_of_kafka_4() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=3, u=3)
    assert RangeAssignor(sticky).assign(spec) == {
        "a": has(t=[0, 1], u=[0, 1]),
        "b": has(t=[2], u=[2]),
    }


def test_the_lowest_are_kept_and_topics_stay_copartitioned() -> None:
    had = range(6)
    spec = group({"b": member("t", "u", target=has(t=had, u=had)), "a": member("t", "u")}, t=6, u=6)
    assert RangeAssignor(sticky).assign(spec) == {
        "b": has(t=[0, 1, 2], u=[0, 1, 2]),
        "a": has(t=[3, 4, 5], u=[3, 4, 5]),
    }


def test_surplus_partitions_stay() -> None:
    spec = group({"a": member("t", target=has(t=[2])), "b": member("t", target=has(t=[0, 1]))}, t=3)
    assert RangeAssignor(sticky).assign(spec) == {"a": has(t=[2]), "b": has(t=[0, 1])}
