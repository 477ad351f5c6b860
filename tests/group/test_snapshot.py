"""A client's view of itself: plain values, unknown is None."""

from __future__ import annotations

import json

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member import messages as m
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from tests.group.harness import ClientHarness, accepted, ends, parts


def test_client_that_only_begins_knows_next_to_nothing() -> None:
    harness = ClientHarness()
    view = take_snapshot(harness.client, 0.0).as_plain()
    assert json.loads(json.dumps(view)) == view
    unknown = {name for name, value in view.items() if value is None}
    assert unknown == {
        *("instance_id", "failure", "group_state", "group_epoch", "assignment_epoch"),
        *("coordinator", "last_heartbeat_age_s", "last_call_age_s", "revocation_age_s"),
        *("in_flight", "session_timeout_ms", "instance_wait_age_s", "instance_wait_left_s"),
        *("batch_age_s", "batch_limit_s", "idle_s", "idle_limit_s"),
        *("revocation_timeout_s", "uncommitted_age_s", "unreachable_age_s", "unreachable_reason"),
    }
    assert (view["state"], view["member_epoch"], view["partitions"]) == ("JOINING", 0, [])


def test_member_with_a_batch_and_a_revocation() -> None:
    harness = ClientHarness(instance_id="i1")
    harness.own(0, 1, offsets={0: 5, 1: 0})
    harness.client.called(harness.now)
    harness.client.plan(PlanLimit(), ends({0: 9, 1: 0}), harness.now)
    harness.beat(accepted(2, parts(1)))
    view = take_snapshot(harness.client, harness.now + 2.5).as_plain()
    assert json.loads(json.dumps(view)) == view
    assert view["coordinator"] == "broker:9092 (id 1)"
    assert (view["group_state"], view["group_epoch"]) == ("Stable", 2)
    assert (view["instance_id"], view["member_id"], view["member_epoch"]) == ("i1", "m1", 2)
    assert (view["assigned"], view["revoking"]) == (["orders-1"], ["orders-0"])
    assert (view["revocation_age_s"], view["revocation_timeout_s"]) == (2.5, 300.0)
    assert view["in_flight"] == [
        {"topic": "orders", "partition": 0, "from_offset": 5, "until_offset": 9}
    ]
    first = view["partitions"][0]
    assert (first["committed_offset"], first["position"], first["log_end_offset"]) == (5, 9, 9)
    assert view["partitions"][1]["committed_offset"] == 0, "0 is known"


def test_position_that_is_not_found_yet_is_none() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(0)))
    (only,) = take_snapshot(harness.client, harness.now).partitions
    assert (only.topic, only.phase) == ("orders", Phase.FETCHING)
    assert only.committed_offset is None
    assert only.position is None
    assert only.log_end_offset is None


def test_topic_without_a_name_is_shown_by_its_id() -> None:
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    harness.beat(accepted(2, parts(0)))
    assert take_snapshot(harness.client, harness.now).assigned == ("AAAAAAAAAAAAAAAAAAAAAQ-0",)


def test_failure_is_shown() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(m.HeartbeatResponse(error_code=30, error_message="no"))
    assert "no" in (take_snapshot(harness.client, harness.now).failure or "")


def test_member_that_has_not_started_has_its_group_and_state_only() -> None:
    view = MemberSnapshot(group="g", state=MemberState.UNSUBSCRIBED)
    assert view.as_plain() == {"group": "g", "state": "UNSUBSCRIBED"}
