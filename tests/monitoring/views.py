"""Snapshots of tests: a member with everything that can be known."""

from __future__ import annotations

from typing import Any

from spark_groups.client import Channel
from spark_groups.client.snapshot import take_snapshot
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from tests.client.hands import Hands, accepted, all_of, ends, parts


def busy_view() -> dict[str, Any]:
    """Return the snapshot of a member that has done all it can do, and does most of it."""
    hands = Hands(instance_id="i1")
    hands.own(0, 1, offsets={0: 5, 1: 0})
    hands.client.called(hands.now)
    plan = hands.client.plan(PlanLimit(), ends({0: 9, 1: 4}), hands.now)
    assert plan is not None
    hands.client.finish(plan, hands.now)
    hands.pump()
    hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS), 113))
    hands.beat(accepted(3, parts(0, 1)))
    hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    hands.client.plan(PlanLimit(), ends({0: 20, 1: 4}), hands.now)
    hands.beat(accepted(3, parts(1)))
    view = take_snapshot(hands.client, hands.now + 2.5)
    assert view["revoking"] == ["orders-0"]
    return view
