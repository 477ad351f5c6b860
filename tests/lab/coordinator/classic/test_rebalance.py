"""The first rebalance of a classic group, and its timers."""

from __future__ import annotations

from spark_groups.lab.coordinator.classic.group import ClassicState
from tests.lab.coordinator.classic.driving import Driven


def test_a_group_waits_for_more_members_before_its_first_generation() -> None:
    driven = Driven()
    first = driven.join()
    driven.wait(2.0)
    second = driven.join()
    driven.wait(3.9)
    assert (first.response, second.response) == (None, None)
    driven.wait(0.1)
    assert driven.answered in ([first, second], [second, first])
    assert driven.group.state is ClassicState.COMPLETING_REBALANCE
    assert driven.group.generation_id == 1
    driven.sync_all()
    assert driven.group.state is ClassicState.STABLE
    assert {each.member_id.encode() for each in driven.group.members.values()} == {
        each.assignment for each in driven.group.members.values()
    }
