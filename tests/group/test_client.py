"""The whole client, by hand: one step after another; lab/tests/sim plays it in groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.errors import CheckpointError, DataLossError, ErrorCode, GroupError
from spark_groups.group.batches.liveness import LivenessLimits
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.ledger.commit_metadata import is_truncated
from spark_groups.group.ledger.events import (
    BatchFinished,
    BatchPlanned,
    CheckpointOfAnotherGroup,
    DataLost,
    PartitionsGivenUp,
    PartitionsReadFromBeginning,
    RangesInherited,
    RangesLost,
    RangesOverruled,
    RebalanceTimeoutRaised,
    RevocationBudgetUsed,
)
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import PartitionsRevoked
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.channels import Channel
from spark_groups.types import EARLIEST_TIMESTAMP, BatchPlan, OffsetRange, PlanTopic
from tests.answers import epoch_answer, fetch_answer, list_answer
from tests.group.harness import (
    TOPIC,
    ClientHarness,
    accepted,
    all_of,
    commit_of_a_query,
    committed,
    ends,
    indexes,
    key,
    offsets_of,
    parts,
)

ALL = PlanLimit()
NONE = m.OffsetAndMetadata(-1)


def planned(harness: ClientHarness, offsets: dict[int, int]) -> BatchPlan:
    plan = harness.client.plan(ALL, ends(offsets), harness.now)
    harness.pump()
    assert plan is not None
    return plan


def planned_under(harness: ClientHarness, offsets: dict[int, int], leader_epoch: int) -> BatchPlan:
    listed = ends(offsets)
    plan = harness.plan(ALL, listed, dict.fromkeys(listed, leader_epoch))
    harness.pump()
    assert plan is not None
    return plan


def finish(harness: ClientHarness, plan: BatchPlan) -> None:
    harness.client.finish(plan, harness.now)
    harness.pump()


def test_batch_is_planned_finished_and_committed_with_the_epoch_of_its_plan() -> None:
    harness = ClientHarness()
    harness.own(0, 1, offsets={0: 5, 1: 7})
    assert indexes(harness.client.parts.next_batch.readable(harness.now)) == [0, 1]
    plan = planned(harness, {0: 10, 1: 7})
    assert plan.ranges == (OffsetRange(TOPIC, "orders", 0, 5, 10),)
    assert (plan.member_id, plan.member_epoch) == ("m1", 2)
    assert not harness.client.parts.next_batch.readable(harness.now)
    assert harness.client.plan(ALL, ends({0: 99}), harness.now) is plan, "one batch at a time"
    harness.beat(accepted(3))
    finish(harness, plan)
    finish(harness, plan)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_epoch, offsets_of(request)) == (2, {0: 10})
    harness.answer(Channel.OFFSETS, all_of(request))
    assert not harness.client.parts.commits.pending()
    kinds = [type(each) for each in harness.find(BatchPlanned, BatchFinished)]
    assert kinds == [BatchPlanned, BatchFinished]


def test_first_plan_of_each_member_id_is_returned_even_without_ranges() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = planned(harness, {0: 0})
    assert (plan.member_id, plan.ranges) == ("m1", ())
    finish(harness, plan)
    assert harness.client.plan(ALL, ends({0: 0}), harness.now) is None
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    harness.beat(accepted(5, parts()))
    assert planned(harness, {}).member_id == "m2"


def test_finished_batch_of_another_group_is_none_of_ours() -> None:
    harness = ClientHarness()
    harness.own(0)
    harness.client.finish(
        BatchPlan("other", "m1", 2, (OffsetRange(TOPIC, "orders", 0, 0, 5),)), harness.now
    )
    assert not harness.client.parts.commits.pending()


def test_replayed_batch_of_another_group_does_not_keep_the_query_from_planning() -> None:
    harness = ClientHarness()
    harness.own(0)
    old = BatchPlan("other", "m1", 2, (OffsetRange(TOPIC, "orders", 0, 0, 5),))
    harness.client.replay(old, harness.now)
    harness.client.finish(old, harness.now)
    assert planned(harness, {0: 7}).ranges == (OffsetRange(TOPIC, "orders", 0, 0, 7),)


def test_plan_names_the_topics_that_were_read_also_without_ranges() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = planned(harness, {0: 0})
    assert (plan.ranges, plan.topics) == ((), (PlanTopic(TOPIC, "orders", 4),))


def test_first_plan_names_the_topics_that_exist_although_nothing_of_them_is_read() -> None:
    """A run that is killed before it is assigned anything must not make them look new."""
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2))
    plan = harness.client.plan(ALL, {}, harness.now)
    assert plan is not None
    assert plan.topics == (PlanTopic(TOPIC, "orders", 4, is_read=False),)


def test_revocation_waits_for_the_batch_and_its_commit() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    plan = planned(harness, {0: 5, 1: 5})
    harness.beat(accepted(2, parts(0)))
    assert indexes(harness.client.parts.member.revoking) == [1]
    harness.wait(20.0)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    finish(harness, plan)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING
    assert len(harness.find(PartitionsRevoked)) == 1


def test_revocation_of_what_no_batch_reads_is_acknowledged_in_the_middle_of_a_batch() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    planned(harness, {0: 5, 1: 0})
    harness.beat(accepted(2, parts(0)))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


def test_partition_that_is_to_be_revoked_is_planned_no_more() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    plan = planned(harness, {0: 5, 1: 5})
    harness.beat(accepted(2, parts(0)))
    finish(harness, plan)
    assert indexes(harness.client.parts.next_batch.readable(harness.now)) == [0]


def test_partitions_that_delay_a_revocation_are_given_up_at_ninety_percent() -> None:
    harness = ClientHarness(rebalance_timeout_ms=10_000)
    harness.own(0, 1)
    plan = planned(harness, {0: 5, 1: 5})
    harness.beat(accepted(2, parts(0)))
    requested_at = harness.client.parts.member.revocation_requested_at
    assert requested_at is not None
    while not harness.find(PartitionsGivenUp):
        harness.until(m.HeartbeatRequest)
        harness.wait(0.05)
        if Channel.HEARTBEAT in harness.under_way and not harness.find(PartitionsGivenUp):
            harness.answer(Channel.HEARTBEAT, accepted(2))
    (given_up,) = harness.find(PartitionsGivenUp)
    assert given_up.at == pytest.approx(requested_at + 9.0)
    assert [e.percent for e in harness.find(RevocationBudgetUsed)] == [50, 80]
    finish(harness, plan)
    (lost,) = harness.find(RangesLost)
    assert isinstance(lost, RangesLost)
    assert [each.partition for each in lost.ranges] == [1]
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 5}


def test_leaving_with_a_delayed_revocation_past_its_limit() -> None:
    """The running batch is given up with the membership; nothing is left to be acknowledged."""
    harness = ClientHarness(rebalance_timeout_ms=10_000)
    harness.own(0, 1)
    plan = planned(harness, {0: 5, 1: 5})
    harness.beat(accepted(2, parts(0)))
    harness.wait(0.1)
    harness.client.leave(harness.now, leave_by=harness.now + 60.0)
    harness.pump()
    assert harness.client.parts.member.state is MemberState.LEAVING
    harness.wait(15.0)
    harness.client.finish(plan, harness.now)
    harness.pump()
    if Channel.HEARTBEAT in harness.under_way:
        harness.fail(Channel.HEARTBEAT)
    harness.cluster()
    assert harness.beat(m.HeartbeatResponse(member_epoch=-1)).member_epoch == -1
    assert harness.client.parts.member.has_left


def test_leaving_commits_finished_batches_first() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = planned(harness, {0: 5})
    finish(harness, plan)
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    assert harness.client.parts.member.state is MemberState.PREPARE_LEAVING
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    assert harness.beat(m.HeartbeatResponse(member_epoch=-1)).member_epoch == -1
    assert harness.client.parts.member.has_left


@pytest.mark.parametrize("loses_heartbeat", [True, False])
def test_leaving_ends_in_time_without_an_answer(loses_heartbeat: bool) -> None:
    harness = ClientHarness()
    harness.own(0)
    finish(harness, planned(harness, {0: 5}))
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    if loses_heartbeat:
        harness.until(m.HeartbeatRequest)
    assert not harness.client.parts.member.is_leave_unanswered
    harness.wait(5.0)
    assert harness.client.parts.member.has_left
    assert harness.client.parts.member.is_leave_unanswered


def test_lost_batch_that_comes_back_untouched_is_inherited() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = planned(harness, {0: 5})
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    harness.beat(accepted(4, parts(0)))
    finish(harness, plan)
    assert len(harness.find(RangesLost)) == 1
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 0}))
    assert len(harness.find(RangesInherited)) == 1
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_id, request.member_epoch, offsets_of(request)) == ("m2", 4, {0: 5})


def test_lost_batch_that_others_committed_past_is_overruled() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = planned(harness, {0: 5})
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    harness.beat(accepted(4, parts(0)))
    finish(harness, plan)
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 3}))
    assert len(harness.find(RangesOverruled)) == 1
    assert planned(harness, {0: 9}).ranges == (OffsetRange(TOPIC, "orders", 0, 3, 9),)


REPLAYED = BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 1, 0, 5),), marks=("at0",))


REPLAYED_LATER = replace(REPLAYED, ranges=(OffsetRange(TOPIC, "orders", 1, 5, 9),), marks=("at5",))


def replaying(
    committed_leader_epoch: int = m.NO_LEADER_EPOCH, batch: BatchPlan = REPLAYED
) -> ClientHarness:
    """A member that is to give up partition 1 while a batch of its last run is replayed."""
    harness = ClientHarness(checkpointed=batch)
    harness.client.replay(batch, harness.now)
    harness.cluster()
    harness.beat(m.HeartbeatResponse(member_epoch=-1))
    harness.beat(accepted(2, parts(0, 1)))
    harness.cluster()
    harness.beat(accepted(2))
    harness.until(m.OffsetFetchRequest)
    committed_offset = batch.ranges[0].from_offset
    found = replace(commit_of_a_query(committed_offset), leader_epoch=committed_leader_epoch)
    harness.answer(Channel.OFFSETS, fetch_answer(offsets={key(0): found, key(1): found}))
    harness.beat(accepted(2, parts(0)))
    assert indexes(harness.client.parts.member.revoking) == [1]
    return harness


def test_revocation_waits_for_a_replayed_batch_and_commits_what_it_finished() -> None:
    harness = replaying()
    harness.wait(20.0)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    finish(harness, REPLAYED)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {1: 5}
    harness.answer(Channel.OFFSETS, all_of(request))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


def test_replayed_batch_whose_offset_was_deleted_is_not_read_twice() -> None:
    harness = ClientHarness(checkpointed=REPLAYED, fail_on_data_loss=False)
    harness.client.replay(REPLAYED, harness.now)
    harness.cluster()
    harness.beat(m.HeartbeatResponse(member_epoch=-1))
    harness.beat(accepted(2, parts(1)))
    harness.cluster()
    harness.beat(accepted(2))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 7}))
    harness.until(m.ListOffsetsRequest)
    listed = list_answer(offsets={key(1): 9}, leader_epochs={key(1): 1})
    harness.answer(Channel.CLUSTER, listed)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    # Without a leader epoch, the next owner could not tell that the log was truncated since.
    assert (offsets_of(request), request.offsets[key(1)].leader_epoch) == ({1: 0}, 1)
    harness.answer(Channel.OFFSETS, all_of(request))
    finish(harness, REPLAYED)
    planned = harness.plan(PlanLimit(), ends({1: 9}), {key(1): 1})
    assert planned is not None
    assert [(each.from_offset, each.until_offset) for each in planned.ranges] == [(5, 9)]


def test_revocation_waits_until_the_leader_has_confirmed_what_a_replayed_batch_finished() -> None:
    harness = replaying(committed_leader_epoch=3)
    finish(harness, REPLAYED)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    assert isinstance(harness.until(m.ListOffsetsRequest), m.ListOffsetsRequest)
    listed = list_answer(offsets={key(1): 9}, leader_epochs={key(1): 3})
    harness.answer(Channel.CLUSTER, listed)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {1: 5}
    harness.answer(Channel.OFFSETS, all_of(request))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


@pytest.mark.parametrize("committed_leader_epoch", [m.NO_LEADER_EPOCH, 3])
def test_leave_waits_for_the_commit_of_a_batch_that_ran_again(committed_leader_epoch: int) -> None:
    harness = replaying(committed_leader_epoch)
    harness.beat(accepted(2, parts(0, 1)))
    harness.client.finish(REPLAYED, harness.now)
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    harness.pump()
    assert harness.client.parts.member.state is MemberState.PREPARE_LEAVING
    if committed_leader_epoch != m.NO_LEADER_EPOCH:
        harness.until(m.ListOffsetsRequest)
        listed = list_answer(offsets={key(1): 9}, leader_epochs={key(1): 3})
        harness.answer(Channel.CLUSTER, listed)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {1: 5}
    harness.answer(Channel.OFFSETS, all_of(request))
    assert harness.client.parts.member.state is MemberState.LEAVING


def test_leave_waits_only_for_a_while_until_a_batch_that_ran_again_is_decided() -> None:
    harness = replaying(committed_leader_epoch=3)
    harness.beat(accepted(2))
    harness.client.finish(REPLAYED, harness.now)
    leave_by = harness.now + 5.0
    harness.client.leave(harness.now, leave_by=leave_by)
    harness.pump()
    while harness.beat(accepted(2)).member_epoch != -1:
        assert harness.client.parts.member.state is MemberState.PREPARE_LEAVING
    assert harness.client.parts.member.has_left
    assert harness.now == leave_by - 1.0, "the last heartbeat needs time for its answer"


def test_leave_waits_for_no_decision_if_committed_offsets_are_gone() -> None:
    harness = ClientHarness(checkpointed=REPLAYED)
    harness.client.replay(REPLAYED, harness.now)
    harness.cluster()
    harness.beat(m.HeartbeatResponse(member_epoch=-1))
    harness.beat(accepted(2, parts(1)))
    harness.cluster()
    harness.beat(accepted(2))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 7}))
    harness.client.finish(REPLAYED, harness.now)
    assert len(harness.find(DataLost)) == 1
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    assert harness.client.parts.member.state is MemberState.LEAVING


def test_leave_waits_for_no_decision_and_asks_no_leader_if_a_log_was_truncated() -> None:
    harness = replaying(committed_leader_epoch=3, batch=REPLAYED_LATER)
    harness.beat(accepted(2, parts(0, 1)))
    finish(harness, REPLAYED_LATER)
    harness.until(m.ListOffsetsRequest)
    listed = list_answer(offsets={key(1): 9}, leader_epochs={key(1): 4})
    harness.answer(Channel.CLUSTER, listed)
    harness.until(m.OffsetForLeaderEpochRequest)
    harness.answer(Channel.CLUSTER, epoch_answer({key(1): m.EpochEnd(2, 3)}))
    assert len(harness.find(DataLost)) == 1
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    harness.pump()
    assert harness.client.parts.member.state is MemberState.LEAVING
    assert not isinstance(harness.request(Channel.CLUSTER), m.OffsetForLeaderEpochRequest)


def test_plan_is_not_made_on_dead_ownership() -> None:
    harness = ClientHarness(session_timeout_ms=12_000)
    harness.own(0)
    proven_at = harness.client.parts.member.last_accepted_sent_at
    assert proven_at is not None
    assert harness.client.parts.next_batch.readable(proven_at + 12.0)
    assert not harness.client.parts.next_batch.readable(proven_at + 12.1)
    assert harness.client.plan(ALL, ends({0: 5}), proven_at + 12.1) is None
    assert harness.client.parts.next_batch.knows_all_ends({key(0): 5}, proven_at + 12.0)
    assert not harness.client.parts.next_batch.knows_all_ends({key(0): 5}, proven_at + 12.1)
    assert not harness.client.parts.next_batch.knows_all_ends({}, proven_at)


def test_completeness_is_unknown_while_an_old_leader_answers() -> None:
    harness = ClientHarness()
    harness.client.parts.available_now.prepare()
    harness.own(0, offsets={0: 5})
    finish(harness, planned_under(harness, {0: 10}, leader_epoch=3))
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    old = {key(0): 2}
    assert harness.plan(ALL, ends({0: 12}), old) is None
    assert not harness.client.parts.next_batch.knows_all_ends(ends({0: 12}), harness.now)
    assert harness.plan(ALL, ends({0: 10}), {key(0): 3}) is None
    assert harness.client.parts.next_batch.knows_all_ends(ends({0: 10}), harness.now)


def test_completeness_is_unknown_while_a_finished_run_is_undecided() -> None:
    harness = replaying(committed_leader_epoch=3)
    harness.beat(accepted(2, parts(0, 1)))
    finish(harness, REPLAYED)
    assert not harness.client.parts.next_batch.knows_all_ends(ends({0: 0, 1: 0}), harness.now)


def test_silence_of_two_heartbeats_is_dead_ownership_where_sessions_are_short() -> None:
    harness = ClientHarness()
    harness.own(0)
    interval_s = harness.client.parts.member.pace.interval_s
    proven_at = harness.client.parts.member.last_accepted_sent_at
    assert proven_at is not None
    assert harness.client.parts.next_batch.readable(proven_at + 2 * interval_s + 5.0)
    assert not harness.client.parts.next_batch.readable(proven_at + 2 * interval_s + 5.1)


def test_seldom_calls_ask_for_a_larger_rebalance_timeout() -> None:
    harness = ClientHarness(rebalance_timeout_ms=10_000)
    harness.own(0)
    harness.client.called(100.0)
    harness.client.called(105.0)
    assert not harness.find(RebalanceTimeoutRaised)
    harness.client.called(112.0)
    harness.pump()
    assert len(harness.find(RebalanceTimeoutRaised)) == 1
    assert harness.beat(accepted(2)).rebalance_timeout_ms == 28_000


def test_final_refusal_fails_the_next_call_with_the_brokers_words() -> None:
    harness = ClientHarness()
    harness.cluster()
    refusal = m.HeartbeatResponse(error_code=30, error_message="Not authorized to access group: g")
    harness.beat(refusal)
    with pytest.raises(GroupError, match="Not authorized to access group: g"):
        harness.client.plan(ALL, {}, harness.now)


def test_data_loss_fails_the_query_once_and_is_not_asked_for_again() -> None:
    plan = BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 0, 0, 5),))
    harness = ClientHarness(checkpointed=plan)
    harness.client.finish(plan, harness.now)
    harness.cluster()
    assert harness.beat(m.HeartbeatResponse(member_epoch=-1)).member_id == "old"
    harness.beat(accepted(2, parts(0)))
    harness.cluster()
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        harness.client.check()
    for _ in range(20):
        harness.wait(0.3)
        assert not isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest)


@pytest.mark.parametrize("restarts", [False, True])
def test_offset_of_a_partition_that_brokers_do_not_know_yet_is_no_loss(restarts: bool) -> None:
    """The group has an offset of partition 4 only, and metadata still says: four partitions."""
    harness = ClientHarness(
        checkpointed=BatchPlan("g", "m0", 1, (OffsetRange(TOPIC, "orders", 4, 0, 5),))
        if restarts
        else None
    )
    harness.cluster()
    if restarts:
        harness.beat(m.HeartbeatResponse(member_epoch=-1))
    fifth, first = parts(4), parts(0)
    harness.beat(accepted(2, first if restarts else fifth))
    harness.cluster()
    harness.beat(accepted(2))
    known = {key(4): commit_of_a_query(5, count=4), **dict.fromkeys(map(key, range(4)), NONE)}
    if not restarts:
        harness.until(m.OffsetFetchRequest)
        harness.answer(Channel.OFFSETS, fetch_answer(offsets=known))
        finish(harness, planned(harness, {4: 9}))
        harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
        harness.beat(accepted(2, first))
        harness.beat(accepted(3, first))
    request = harness.until(m.OffsetFetchRequest)
    assert isinstance(request, m.OffsetFetchRequest)
    assert indexes(request.partitions) == [0, 1, 2, 3, 4]
    harness.answer(Channel.OFFSETS, fetch_answer(offsets=known))
    harness.client.check()
    assert not harness.find(DataLost)


@pytest.mark.parametrize("ends_first", [True, False])
def test_batch_that_ends_during_a_second_lookup_is_not_read_again(
    ends_first: bool,
) -> None:
    harness = ClientHarness()
    harness.own(0, offsets={0: 0})
    finish(harness, planned(harness, {0: 100}))
    second = planned(harness, {0: 200})
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request, ErrorCode.UNKNOWN_TOPIC_ID))
    harness.until(m.OffsetFetchRequest)
    if ends_first:
        finish(harness, second)
    harness.answer(Channel.OFFSETS, committed({0: 0}))
    if not ends_first:
        finish(harness, second)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 200}
    harness.answer(Channel.OFFSETS, all_of(request))
    (found,) = planned(harness, {0: 300}).ranges
    assert (found.from_offset, found.until_offset) == (200, 300)


def test_rows_that_are_written_again_after_a_log_was_cut_are_another_batch_for_spark() -> None:
    harness = ClientHarness(fail_on_data_loss=False)
    harness.own(0, offsets={0: 5})
    first = harness.plan(ALL, ends({0: 10}), {key(0): 2})
    assert first is not None
    finish(harness, first)
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    harness.plan(ALL, ends({0: 10}), {key(0): 3})
    harness.pump()
    request = harness.until(m.OffsetForLeaderEpochRequest)
    assert isinstance(request, m.OffsetForLeaderEpochRequest)
    cut = epoch_answer(ends=dict.fromkeys(request.lookups, m.EpochEnd(5, 2)))
    harness.answer(Channel.CLUSTER, cut)
    assert harness.plan(ALL, ends({0: 10}), {key(0): 3}) is None
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    again = harness.plan(ALL, ends({0: 10}), {key(0): 3})
    assert again is not None
    assert (again.ranges, again.marks != first.marks) == (first.ranges, True)
    finish(harness, again)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 10}
    assert not is_truncated(request.offsets[key(0)].metadata)


def test_plan_that_is_made_again_follows_an_empty_one_so_that_spark_notices_it() -> None:
    """The commit of the batch was dropped, and it stands on the commit of another client."""
    harness = ClientHarness()
    by_another_client = fetch_answer(offsets={key(0): m.OffsetAndMetadata(5)})
    harness.own(0, offsets={0: 5})
    harness.client.parts.ledger.owned[key(0)].mark = NO_MARK
    first = planned(harness, {0: 10})
    finish(harness, first)
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request, ErrorCode.UNKNOWN_TOPIC_ID))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, by_another_client)
    between = planned(harness, {0: 10})
    assert not between.ranges, "Spark would take the same text for no news"
    finish(harness, between)
    assert planned(harness, {0: 10}) == first


def test_larger_rebalance_timeout_does_not_apply_to_an_earlier_revocation() -> None:
    harness = ClientHarness(rebalance_timeout_ms=10_000)
    harness.own(0, 1, offsets={0: 0, 1: 0})
    harness.client.called(harness.now)
    planned(harness, {0: 10, 1: 10})
    harness.beat(accepted(3, parts(0)))
    requested_at = harness.client.parts.member.revocation_requested_at
    assert requested_at is not None
    while not harness.find(PartitionsGivenUp):
        if isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest):
            harness.answer(Channel.HEARTBEAT, accepted(3))
        harness.wait(0.5)
        if harness.now > requested_at + 6 and not harness.find(RebalanceTimeoutRaised):
            harness.client.called(harness.now)
    assert harness.find(RebalanceTimeoutRaised)
    assert harness.find(PartitionsGivenUp)[0].at == pytest.approx(requested_at + 9.0, abs=0.1)


OTHER = BatchPlan(
    "other", "old", 7, (OffsetRange(TOPIC, "orders", 0, 0, 5),), (PlanTopic(TOPIC, "orders", 2),)
)


def test_counts_come_from_the_checkpoint_and_go_into_the_plan() -> None:
    harness = ClientHarness(
        checkpointed=BatchPlan("g", "old", 7, (), (PlanTopic(TOPIC, "orders", 2),))
    )
    harness.cluster()
    harness.beat(m.HeartbeatResponse(member_epoch=-1))
    harness.beat(accepted(2, parts(0, 2)))
    harness.cluster()
    harness.until(m.OffsetFetchRequest)
    nothing_known = m.OffsetAndMetadata(5)
    offsets = {key(each): nothing_known if each < 2 else NONE for each in range(4)}
    harness.answer(Channel.OFFSETS, fetch_answer(offsets=offsets))
    request = harness.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    assert (request.partitions, request.timestamp_ms) == ({key(2)}, EARLIEST_TIMESTAMP)
    assert harness.find(PartitionsReadFromBeginning) == []
    plan = harness.client.plan(ALL, ends({0: 9}), harness.now)
    assert plan is not None
    assert plan.topics == (PlanTopic(TOPIC, "orders", 2),)


@pytest.mark.parametrize("starting", StartingPoint)
def test_checkpoint_of_another_group_fails_the_query_before_anything_is_recorded(
    starting: StartingPoint,
) -> None:
    harness = ClientHarness(StartingOffsets(starting), checkpointed=OTHER)
    harness.client.replay(OTHER, harness.now)
    harness.client.finish(OTHER, harness.now)
    harness.cluster()
    harness.beat(accepted(2, parts()))
    assert harness.client.plan(ALL, {}, harness.now) is None, (
        "the checkpoint must not look like ours"
    )
    harness.beat(accepted(3, parts(0)))
    harness.cluster()
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    with pytest.raises(CheckpointError, match="spark-groups reset-offsets g --from-group other "):
        harness.client.plan(ALL, {}, harness.now)
    for _ in range(20):
        harness.wait(0.3)
        assert not isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest)
    assert not harness.client.parts.commits.pending()


def test_checkpoint_of_another_group_yields_to_the_commits_of_this_one() -> None:
    harness = ClientHarness(checkpointed=OTHER)
    harness.client.finish(OTHER, harness.now)
    harness.own(0, offsets={0: 0})
    (reported,) = harness.find(CheckpointOfAnotherGroup)
    assert isinstance(reported, CheckpointOfAnotherGroup)
    assert (reported.former_group_id, reported.topics) == ("other", ("orders",))
    plan = planned(harness, {0: 7})
    assert plan.ranges == (OffsetRange(TOPIC, "orders", 0, 0, 7),), "nothing of it is inherited"
    assert plan.topics == (PlanTopic(TOPIC, "orders", 4),), "the count is that of this group"


def test_defaults_are_the_careful_ones() -> None:
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders")),
        starting_offsets=StartingOffsets(StartingPoint.LATEST),
    )
    assert (config.read_committed, config.fail_on_data_loss) == (False, True)
    assert config.liveness == LivenessLimits(max_idle_s=None)
