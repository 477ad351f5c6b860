"""What a client did, counted: by answers, by events, and over whole simulated runs."""

from __future__ import annotations

import pytest

from group_lab.sim import facts
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import Facts, world
from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.counts import Count
from spark_groups.group.ledger.events import BatchFinished, BatchPlanned, RangesLost
from spark_groups.group.member import messages as m
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.metrics import (
    BOUNDS_S,
    NO_ANSWER,
    Durations,
    Metrics,
    MetricsSnapshot,
    Spread,
    Took,
)
from spark_groups.group.requests.channels import Channel
from spark_groups.group.snapshot import take_snapshot
from tests.group.harness import ClientHarness, accepted, all_of, ends, parts


def metrics_of(harness: ClientHarness) -> MetricsSnapshot:
    found = take_snapshot(harness.client, harness.now).tally
    assert found is not None
    return found


def counts(harness: ClientHarness) -> dict[str, int]:
    """Return the counts that are not zero."""
    return {each.name.lower(): count for each, count in metrics_of(harness).counts.items() if count}


def took(harness: ClientHarness, what: Took) -> Durations:
    return metrics_of(harness).took[what]


def run_batch(harness: ClientHarness, until: int) -> None:
    plan = harness.client.plan(PlanLimit(), ends({0: until, 1: 0}), harness.now)
    assert plan is not None
    harness.wait(2.0)
    harness.client.finish(plan, harness.now)
    harness.pump()


def test_client_that_only_begins_has_counted_nothing() -> None:
    harness = ClientHarness()
    shown = metrics_of(harness)
    assert set(shown.counts.values()) == {0}
    assert shown.errors == ()
    assert shown.last_rebalance_age_s is None
    assert {each.max_s for each in shown.took.values()} == {None}


def test_joining_is_two_heartbeats_and_one_rebalance() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    assert counts(harness) == {"heartbeat": 2, "rebalance": 1, "partitions_assigned": 2}
    harness.now += 3
    assert metrics_of(harness).last_rebalance_age_s == 3.0


def test_heartbeats_are_timed_from_sending_to_answer() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.until(m.HeartbeatRequest)
    harness.now += 0.3
    harness.answer(Channel.HEARTBEAT, accepted(2))
    spread = took(harness, Took.HEARTBEAT_RESPONSE_TIME)
    assert (spread.sum_s, spread.max_s) == (0.3, 0.3)
    within = dict(zip(spread.bounds_s, spread.buckets, strict=False))
    assert (within[0.25], within[0.5], spread.buckets[-1]) == (0, 1, 1)


def test_batch_and_its_commit_are_counted_and_timed() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    run_batch(harness, 7)
    harness.until(m.OffsetCommitRequest)
    harness.now += 0.2
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    found = counts(harness)
    assert (found["batches_planned"], found["batches_finished"]) == (1, 1)
    assert (found["offsets_finished"], found["commit"]) == (7, 1)
    assert "commit_failed" not in found
    assert took(harness, Took.BATCH_TIME).sum_s == 2.0
    assert took(harness, Took.COMMIT_LATENCY).sum_s == 0.2


def test_fenced_commit_is_counted_by_its_error() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    run_batch(harness, 7)
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request, ErrorCode.STALE_MEMBER_EPOCH))
    found = counts(harness)
    assert (found["commit"], found["commit_failed"], found["commit_fenced"]) == (1, 1, 1)
    errors = metrics_of(harness).errors
    assert errors == (("OffsetCommit", "STALE_MEMBER_EPOCH", 1),)


def test_error_that_is_not_about_the_member_does_not_fence() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    run_batch(harness, 7)
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    found = counts(harness)
    assert (found["commit_failed"], found.get("commit_fenced", 0)) == (1, 0)


def test_commit_that_waits_ages_until_one_is_accepted() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    run_batch(harness, 7)
    harness.until(m.OffsetCommitRequest)
    harness.now += 4.0
    harness.fail(Channel.OFFSETS)
    assert take_snapshot(harness.client, harness.now).uncommitted_age_s == 4.0
    errors = metrics_of(harness).errors
    assert ("OffsetCommit", NO_ANSWER, 1) in errors
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request))
    # An answer was lost before: only what a fetch shows counts.
    assert take_snapshot(harness.client, harness.now).uncommitted_age_s == 0.0


def test_revocation_is_timed_from_its_word_to_its_end() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    plan = harness.client.plan(PlanLimit(), ends({0: 5, 1: 5}), harness.now)
    assert plan is not None
    harness.pump()
    harness.beat(accepted(2, parts(1)))
    requested_at = harness.now
    harness.wait(3.0)
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    assert counts(harness)["partitions_revoked"] == 1
    assert took(harness, Took.PARTITION_REVOKED_LATENCY).sum_s == pytest.approx(
        harness.now - requested_at, abs=0.01
    )


def test_fenced_member_has_lost_a_membership_and_a_rebalance() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(0, 1)))
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    found = counts(harness)
    assert (found["memberships_lost"], found["partitions_lost"]) == (1, 2)
    assert (found["failed_rebalance"], found["heartbeat_failed"]) == (1, 1)
    assert "rebalance" not in found


def test_member_ids_of_a_client_are_kept() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        harness.beat(m.HeartbeatResponse(error_code=code))
        harness.beat(accepted(5, parts(0, 1)))
    assert metrics_of(harness).joined_as == ("m1", "m2")


def test_goodbye_is_no_heartbeat_of_the_member() -> None:
    metrics = Metrics()
    goodbye = m.HeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
    metrics.answered(goodbye, m.HeartbeatResponse(error_code=25), 0.1, 1.0)
    metrics.unanswered(goodbye)
    assert not any(metrics.counts.values())
    assert not metrics.errors
    assert metrics.snapshot(1.0).took[Took.HEARTBEAT_RESPONSE_TIME].buckets[-1] == 0


def test_leaving_in_a_rebalance_is_no_failure() -> None:
    metrics = Metrics()
    metrics.follow(MemberState.RECONCILING, 1.0, has_uncommitted=False)
    metrics.follow(MemberState.PREPARE_LEAVING, 2.0, has_uncommitted=False)
    assert not any(metrics.counts.values())


def test_longest_of_late_is_forgotten() -> None:
    spread = Spread((1.0, 5.0))
    spread.add(4.0, 10.0)
    spread.add(0.5, 31.0)
    assert spread.durations(31.0).max_s == 4.0
    assert spread.durations(60.0).max_s == 0.5
    assert spread.durations(90.0).max_s is None
    assert spread.durations(90.0).buckets == (1, 2, 2)
    assert spread.durations(90.0).sum_s == 4.5


def test_every_duration_has_ascending_bounds() -> None:
    assert set(BOUNDS_S) == set(Took)
    assert all(list(bounds) == sorted(set(bounds)) for bounds in BOUNDS_S.values())


@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_a_simulated_run_match_its_events(seed: int) -> None:
    happened, triggered = Facts(facts.Happened), Facts(facts.Triggered)
    run = world(Swarm(queries=2, partitions=3), "kafka-4.3", seed, happened, triggered)
    run.run()
    said = [each.event for each in happened.seen if isinstance(each, facts.Happened)]
    clients = {
        id(each.client): each.client for each in triggered.seen if isinstance(each, facts.Triggered)
    }
    counted = {
        count: sum(client.parts.metrics.counts[count] for client in clients.values())
        for count in Count
    }
    assert counted[Count.BATCHES_PLANNED] == sum(isinstance(each, BatchPlanned) for each in said)
    assert counted[Count.BATCHES_PLANNED] > 0
    finished = [each.plan for each in said if isinstance(each, BatchFinished)]
    assert counted[Count.BATCHES_FINISHED] == len(finished)
    rows = sum(len(each) for plan in finished for each in plan.ranges)
    assert counted[Count.OFFSETS_FINISHED] == rows
    lost = sum(len(one) for each in said if isinstance(each, RangesLost) for one in each.ranges)
    assert counted[Count.OFFSETS_LOST] == lost
    assert counted[Count.HEARTBEAT] >= counted[Count.HEARTBEAT_FAILED]
    for query in run.queries:
        assert query.current is not None
        metrics = query.current.client.parts.metrics.counts
        gone = metrics[Count.PARTITIONS_REVOKED] + metrics[Count.PARTITIONS_LOST]
        owned = len(query.current.client.parts.member.owned)
        assert metrics[Count.PARTITIONS_ASSIGNED] - gone == owned
