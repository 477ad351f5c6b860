"""Every order of events of a small group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import heartbeat
from group_lab.coordinator import records as r
from group_lab.coordinator.profile import PROFILES
from group_lab.sim import exhaustive
from group_lab.sim.exhaustive import Bounds, Found, explore


@pytest.mark.parametrize("profile", PROFILES)
def test_every_order_of_events_keeps_every_promise(profile: str) -> None:
    found = explore(PROFILES[profile], Bounds(depth=7))
    assert found.broken == ()
    assert found.states > 300


def test_three_members_and_three_partitions_have_more_orders() -> None:
    found = explore(PROFILES["kafka-4.3"], Bounds(members=3, partitions=3, depth=5))
    assert found.broken == ()
    assert found.states > explore(PROFILES["kafka-4.3"], Bounds(depth=5)).states


def test_without_faults_there_are_fewer_states() -> None:
    bounds = Bounds(depth=7)
    calm = explore(PROFILES["kafka-4.3"], replace(bounds, faults=0))
    assert calm.states < explore(PROFILES["kafka-4.3"], bounds).states


def test_a_coordinator_that_frees_too_early_is_found_with_the_events_that_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = heartbeat.heartbeat

    def wrong(*arguments: Any) -> Any:
        outcome = right(*arguments)
        records = tuple(
            r.Record(each.key, replace(each.value, pending_revocation={}))
            if isinstance(each.value, r.CurrentAssignmentValue)
            else each
            for each in outcome.records
        )
        return replace(outcome, records=records)

    monkeypatch.setattr(exhaustive.heartbeat, "heartbeat", wrong)
    found = explore(PROFILES["kafka-4.3"], Bounds(depth=12, faults=0))
    assert "both own" in found.broken[-1]
    assert found.broken[0].endswith("heartbeats")


def test_result_is_the_count_of_states_or_the_way_to_the_broken_promise() -> None:
    assert Found(1_234, 8).text == "1,234 states visited, 8 events deep: every promise kept"
    broken = Found(12, 3, ("m1 heartbeats", "m1 leaves", "it broke")).text
    assert broken == "it broke (12 states visited), after:\nm1 heartbeats\nm1 leaves"
