"""Snapshots of tests: a member with everything that can be known."""

from __future__ import annotations

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from tests.group.harness import ClientHarness, accepted, all_of, ends, parts


def busy_view() -> MemberSnapshot:
    """Return the snapshot of a member that has done all it can do, and does most of it."""
    harness = ClientHarness(instance_id="i1")
    harness.own(0, 1, offsets={0: 5, 1: 0})
    harness.client.called(harness.now)
    plan = harness.client.plan(PlanLimit(), ends({0: 9, 1: 4}), harness.now)
    assert plan is not None
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS), 113))
    harness.beat(accepted(3, parts(0, 1)))
    harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    harness.client.plan(PlanLimit(), ends({0: 20, 1: 4}), harness.now)
    harness.beat(accepted(3, parts(1)))
    view = take_snapshot(harness.client, harness.now + 2.5)
    assert view.revoking == ("orders-0",)
    return view
