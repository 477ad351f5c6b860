"""The assignors that the leader of a classic group computes."""

from __future__ import annotations

import pytest

from group_lab.assignors.classic import (
    ClassicAssignor,
    ClassicRangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    rebalance_protocol,
)
from group_lab.assignors.sticky import CooperativeStickyAssignor
from lab.tests.assignors.groups import assigned, classic_member, partitions

RANGE = ClassicRangeAssignor()
ROUND_ROBIN = RoundRobinAssignor()


def test_range_cuts_each_topic_for_itself() -> None:
    members = {"b": classic_member("t", "u"), "a": classic_member("t", "u")}
    assert assigned(RANGE, members, t=3, u=3) == {
        "a": partitions(t=[0, 1], u=[0, 1]),
        "b": partitions(t=[2], u=[2]),
    }


def test_round_robin_deals_across_topics() -> None:
    members = {"b": classic_member("u", "t"), "a": classic_member("t", "u")}
    assert assigned(ROUND_ROBIN, members, t=3, u=3) == {
        "a": partitions(t=[0, 2], u=[1]),
        "b": partitions(t=[1], u=[0, 2]),
    }


def test_round_robin_passes_over_members_without_the_topic() -> None:
    members = {
        "a": classic_member("t"),
        "b": classic_member("t", "u"),
        "c": classic_member("t", "u", "v"),
    }
    assert assigned(ROUND_ROBIN, members, t=1, u=2, v=3) == {
        "a": partitions(t=[0]),
        "b": partitions(u=[0]),
        "c": partitions(u=[1], v=[0, 1, 2]),
    }


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN], ids=lambda each: each.name)
def test_a_topic_that_a_member_names_twice_counts_once(assignor: ClassicAssignor) -> None:
    members = {"a": classic_member("t", "t"), "b": classic_member("t")}
    once = {"a": classic_member("t"), "b": classic_member("t")}
    assert assigned(assignor, members, t=6) == assigned(assignor, once, t=6)


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN], ids=lambda each: each.name)
def test_static_members_come_first_by_their_instance_id(assignor: ClassicAssignor) -> None:
    members = {
        "a": classic_member("t"),
        "b": classic_member("t", instance_id="i2"),
        "c": classic_member("t", instance_id="i1"),
    }
    assert assigned(assignor, members, t=3) == {
        "c": partitions(t=[0]),
        "b": partitions(t=[1]),
        "a": partitions(t=[2]),
    }


def test_the_rebalance_protocol_is_the_best_that_all_assignors_support() -> None:
    cooperative = CooperativeStickyAssignor()
    assert rebalance_protocol([RANGE, ROUND_ROBIN]) is RebalanceProtocol.EAGER
    assert rebalance_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([cooperative, RANGE]) is RebalanceProtocol.EAGER
