"""The whole client, by hand: one step after another; tests/lab/sim plays it in groups."""

from __future__ import annotations

import pytest

from spark_groups.client import Channel
from spark_groups.client.client_config import ClientConfig
from spark_groups.client.liveness import LivenessLimits
from spark_groups.errors import CheckpointError, DataLossError, ErrorCode, GroupError
from spark_groups.offsets.events import (
    BatchFinished,
    BatchPlanned,
    CheckpointOfAnotherGroup,
    PartitionsGivenUp,
    PartitionsReadWhole,
    RangesInherited,
    RangesLost,
    RangesOverruled,
    RebalanceTimeoutRaised,
    RevocationBudgetUsed,
)
from spark_groups.offsets.planning import PlanLimit
from spark_groups.offsets.starting import StartingOffsets, StartingPoint, commit_metadata
from spark_groups.protocol import messages as m
from spark_groups.protocol.events import PartitionsRevoked
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.membership import MemberState
from spark_groups.protocol.subscription import Subscription
from spark_groups.types import BatchPlan, OffsetRange, ReadTopic
from tests.client.hands import (
    TOPIC,
    Hands,
    accepted,
    all_of,
    committed,
    ends,
    indexes,
    key,
    offsets_of,
    parts,
)

ALL = PlanLimit()
NONE = m.OffsetAndMetadata(-1)


def planned(hands: Hands, offsets: dict[int, int]) -> BatchPlan:
    plan = hands.client.plan(ALL, ends(offsets), hands.now)
    hands.pump()
    assert plan is not None
    return plan


def planned_under(hands: Hands, offsets: dict[int, int], leader_epoch: int) -> BatchPlan:
    listed = ends(offsets)
    plan = hands.plan(ALL, listed, dict.fromkeys(listed, leader_epoch))
    hands.pump()
    assert plan is not None
    return plan


def finish(hands: Hands, plan: BatchPlan) -> None:
    hands.client.finish(plan, hands.now)
    hands.pump()


def test_batch_is_planned_finished_and_committed_with_the_epoch_of_its_plan() -> None:
    hands = Hands()
    hands.own(0, 1, offsets={0: 5, 1: 7})
    assert indexes(hands.client.readable(hands.now)) == [0, 1]
    plan = planned(hands, {0: 10, 1: 7})
    assert plan.ranges == (OffsetRange(TOPIC, "orders", 0, 5, 10),)
    assert (plan.member_id, plan.member_epoch) == ("m1", 2)
    assert not hands.client.readable(hands.now)
    assert hands.client.plan(ALL, ends({0: 99}), hands.now) is plan, "one batch at a time"
    hands.beat(accepted(3))
    finish(hands, plan)
    finish(hands, plan)
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_epoch, offsets_of(request)) == (2, {0: 10})
    hands.answer(Channel.OFFSETS, all_of(request))
    assert not hands.client.commits.pending()
    kinds = [type(each) for each in hands.find(BatchPlanned, BatchFinished)]
    assert kinds == [BatchPlanned, BatchFinished]


def test_first_plan_of_each_member_id_is_returned_even_without_ranges() -> None:
    hands = Hands()
    hands.own(0)
    plan = planned(hands, {0: 0})
    assert (plan.member_id, plan.ranges) == ("m1", ())
    finish(hands, plan)
    assert hands.client.plan(ALL, ends({0: 0}), hands.now) is None
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    hands.beat(accepted(5, parts()))
    assert planned(hands, {}).member_id == "m2"


def test_finished_batch_of_another_group_is_none_of_ours() -> None:
    hands = Hands()
    hands.own(0)
    hands.client.finish(
        BatchPlan("other", "m1", 2, (OffsetRange(TOPIC, "orders", 0, 0, 5),)), hands.now
    )
    assert not hands.client.commits.pending()


def test_replayed_batch_of_another_group_does_not_keep_the_query_from_planning() -> None:
    hands = Hands()
    hands.own(0)
    old = BatchPlan("other", "m1", 2, (OffsetRange(TOPIC, "orders", 0, 0, 5),))
    hands.client.replay(old, hands.now)
    hands.client.finish(old, hands.now)
    assert planned(hands, {0: 7}).ranges == (OffsetRange(TOPIC, "orders", 0, 0, 7),)


def test_plan_names_the_topics_that_were_read_also_without_ranges() -> None:
    hands = Hands()
    hands.own(0)
    plan = planned(hands, {0: 0})
    assert (plan.ranges, plan.topics) == ((), ((TOPIC, "orders", 4),))


def test_revocation_waits_for_the_batch_and_its_commit() -> None:
    hands = Hands()
    hands.own(0, 1)
    plan = planned(hands, {0: 5, 1: 5})
    hands.beat(accepted(2, parts(0)))
    assert indexes(hands.client.member.revoking) == [1]
    hands.wait(20.0)
    assert hands.client.member.state is MemberState.RECONCILING
    finish(hands, plan)
    assert hands.client.member.state is MemberState.RECONCILING
    request = hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(request))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING
    assert len(hands.find(PartitionsRevoked)) == 1


def test_revocation_of_what_no_batch_reads_is_acknowledged_in_the_middle_of_a_batch() -> None:
    hands = Hands()
    hands.own(0, 1)
    planned(hands, {0: 5, 1: 0})
    hands.beat(accepted(2, parts(0)))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_partition_that_is_to_be_revoked_is_planned_no_more() -> None:
    hands = Hands()
    hands.own(0, 1)
    plan = planned(hands, {0: 5, 1: 5})
    hands.beat(accepted(2, parts(0)))
    finish(hands, plan)
    assert indexes(hands.client.readable(hands.now)) == [0]


def test_contested_partitions_are_given_up_at_ninety_percent() -> None:
    hands = Hands(rebalance_timeout_ms=10_000)
    hands.own(0, 1)
    plan = planned(hands, {0: 5, 1: 5})
    hands.beat(accepted(2, parts(0)))
    told_at = hands.client.member.revocation_told_at
    assert told_at is not None
    while not hands.find(PartitionsGivenUp):
        hands.until(m.HeartbeatRequest)
        hands.wait(0.05)
        if Channel.HEARTBEAT in hands.under_way and not hands.find(PartitionsGivenUp):
            hands.answer(Channel.HEARTBEAT, accepted(2))
    (given_up,) = hands.find(PartitionsGivenUp)
    assert given_up.at == pytest.approx(told_at + 9.0)
    assert [e.percent for e in hands.find(RevocationBudgetUsed)] == [50, 80]
    finish(hands, plan)
    (lost,) = hands.find(RangesLost)
    assert isinstance(lost, RangesLost)
    assert [each.partition for each in lost.ranges] == [1]
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 5}


def test_leaving_with_a_contested_revocation_past_its_limit() -> None:
    """The running batch is given up with the membership; nothing is left to be acknowledged."""
    hands = Hands(rebalance_timeout_ms=10_000)
    hands.own(0, 1)
    plan = planned(hands, {0: 5, 1: 5})
    hands.beat(accepted(2, parts(0)))
    hands.wait(0.1)
    hands.client.leave(hands.now, leave_by=hands.now + 60.0)
    hands.pump()
    assert hands.client.member.state is MemberState.LEAVING
    hands.wait(15.0)
    hands.client.finish(plan, hands.now)
    hands.pump()
    if Channel.HEARTBEAT in hands.under_way:
        hands.fail(Channel.HEARTBEAT)
    hands.cluster()
    assert hands.beat(m.HeartbeatResponse(member_epoch=-1)).member_epoch == -1
    assert hands.client.has_left


def test_leaving_commits_what_is_finished_first() -> None:
    hands = Hands()
    hands.own(0)
    plan = planned(hands, {0: 5})
    finish(hands, plan)
    hands.client.leave(hands.now, leave_by=hands.now + 5.0)
    assert hands.client.member.state is MemberState.PREPARE_LEAVING
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    assert hands.beat(m.HeartbeatResponse(member_epoch=-1)).member_epoch == -1
    assert hands.client.has_left


@pytest.mark.parametrize("loses_heartbeat", [True, False])
def test_leaving_ends_in_time_when_nobody_answers(loses_heartbeat: bool) -> None:
    hands = Hands()
    hands.own(0)
    finish(hands, planned(hands, {0: 5}))
    hands.client.leave(hands.now, leave_by=hands.now + 5.0)
    if loses_heartbeat:
        hands.until(m.HeartbeatRequest)
    hands.wait(5.0)
    assert hands.client.has_left


def test_lost_batch_that_comes_back_untouched_is_inherited() -> None:
    hands = Hands()
    hands.own(0)
    plan = planned(hands, {0: 5})
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    hands.beat(accepted(4, parts(0)))
    finish(hands, plan)
    assert len(hands.find(RangesLost)) == 1
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 0}))
    assert len(hands.find(RangesInherited)) == 1
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_id, request.member_epoch, offsets_of(request)) == ("m2", 4, {0: 5})


def test_lost_batch_that_others_committed_past_is_overruled() -> None:
    hands = Hands()
    hands.own(0)
    plan = planned(hands, {0: 5})
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    hands.beat(accepted(4, parts(0)))
    finish(hands, plan)
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 3}))
    assert len(hands.find(RangesOverruled)) == 1
    assert planned(hands, {0: 9}).ranges == (OffsetRange(TOPIC, "orders", 0, 3, 9),)


REPLAYED = BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 1, 0, 5),))


def replaying(told_leader_epoch: int = m.NO_LEADER_EPOCH) -> Hands:
    """A member that is to give up partition 1 while a batch of its last run is replayed."""
    hands = Hands(checkpointed=REPLAYED)
    hands.client.replay(REPLAYED, hands.now)
    hands.cluster()
    hands.beat(m.HeartbeatResponse(member_epoch=-1))
    hands.beat(accepted(2, parts(0, 1)))
    hands.cluster()
    hands.beat(accepted(2))
    hands.until(m.OffsetFetchRequest)
    found = m.OffsetAndMetadata(0, commit_metadata(4), leader_epoch=told_leader_epoch)
    hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(offsets={key(0): found, key(1): found}))
    hands.beat(accepted(2, parts(0)))
    assert indexes(hands.client.member.revoking) == [1]
    return hands


def test_revocation_waits_for_a_replayed_batch_and_commits_what_it_finished() -> None:
    hands = replaying()
    hands.wait(20.0)
    assert hands.client.member.state is MemberState.RECONCILING
    finish(hands, REPLAYED)
    assert hands.client.member.state is MemberState.RECONCILING
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {1: 5}
    hands.answer(Channel.OFFSETS, all_of(request))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_revocation_waits_until_the_leader_has_confirmed_what_a_replayed_batch_finished() -> None:
    hands = replaying(told_leader_epoch=3)
    finish(hands, REPLAYED)
    assert hands.client.member.state is MemberState.RECONCILING
    assert isinstance(hands.until(m.ListOffsetsRequest), m.ListOffsetsRequest)
    listed = m.ListOffsetsResponse(offsets={key(1): 9}, leader_epochs={key(1): 3})
    hands.answer(Channel.CLUSTER, listed)
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {1: 5}
    hands.answer(Channel.OFFSETS, all_of(request))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_plan_is_not_made_on_dead_ownership() -> None:
    hands = Hands(session_timeout_ms=12_000)
    hands.own(0)
    proven_at = hands.client.member.last_accepted_sent_at
    assert proven_at is not None
    assert hands.client.readable(proven_at + 12.0)
    assert not hands.client.readable(proven_at + 12.1)
    assert hands.client.plan(ALL, ends({0: 5}), proven_at + 12.1) is None
    assert hands.client.can_tell({key(0): 5}, proven_at + 12.0)
    assert not hands.client.can_tell({key(0): 5}, proven_at + 12.1)
    assert not hands.client.can_tell({}, proven_at)


def test_nobody_can_tell_that_nothing_is_left_while_an_old_leader_answers() -> None:
    hands = Hands()
    hands.client.prepare_available_now()
    hands.own(0, offsets={0: 5})
    finish(hands, planned_under(hands, {0: 10}, leader_epoch=3))
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    old = {key(0): 2}
    assert hands.plan(ALL, ends({0: 12}), old) is None
    assert not hands.client.can_tell(ends({0: 12}), hands.now)
    assert hands.plan(ALL, ends({0: 10}), {key(0): 3}) is None
    assert hands.client.can_tell(ends({0: 10}), hands.now)


def test_nobody_can_tell_that_nothing_is_left_while_a_finished_run_is_undecided() -> None:
    hands = replaying(told_leader_epoch=3)
    hands.beat(accepted(2, parts(0, 1)))
    finish(hands, REPLAYED)
    assert not hands.client.can_tell(ends({0: 0, 1: 0}), hands.now)


def test_silence_of_two_heartbeats_is_dead_ownership_where_sessions_are_short() -> None:
    hands = Hands()
    hands.own(0)
    interval_s = hands.client.member.pace.interval_s
    proven_at = hands.client.member.last_accepted_sent_at
    assert proven_at is not None
    assert hands.client.readable(proven_at + 2 * interval_s + 5.0)
    assert not hands.client.readable(proven_at + 2 * interval_s + 5.1)


def test_seldom_calls_ask_for_a_larger_rebalance_timeout() -> None:
    hands = Hands(rebalance_timeout_ms=10_000)
    hands.own(0)
    hands.client.called(100.0)
    hands.client.called(105.0)
    assert not hands.find(RebalanceTimeoutRaised)
    hands.client.called(112.0)
    hands.pump()
    assert len(hands.find(RebalanceTimeoutRaised)) == 1
    assert hands.beat(accepted(2)).rebalance_timeout_ms == 28_000


def test_final_refusal_fails_the_next_call_with_the_brokers_words() -> None:
    hands = Hands()
    hands.cluster()
    refusal = m.HeartbeatResponse(error_code=30, error_message="Not authorized to access group: g")
    hands.beat(refusal)
    with pytest.raises(GroupError, match="Not authorized to access group: g"):
        hands.client.plan(ALL, {}, hands.now)


def test_data_loss_fails_the_query_once_and_is_not_asked_for_again() -> None:
    plan = BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 0, 0, 5),))
    hands = Hands(checkpointed=plan)
    hands.client.finish(plan, hands.now)
    hands.cluster()
    assert hands.beat(m.HeartbeatResponse(member_epoch=-1)).member_id == "old"
    hands.beat(accepted(2, parts(0)))
    hands.cluster()
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        hands.client.check()
    for _ in range(20):
        hands.wait(0.3)
        assert not isinstance(hands.request(Channel.OFFSETS), m.OffsetFetchRequest)


@pytest.mark.parametrize("ends_first", [True, False])
def test_batch_that_ends_while_its_partition_is_looked_up_anew_is_not_read_again(
    ends_first: bool,
) -> None:
    hands = Hands()
    hands.own(0, offsets={0: 0})
    finish(hands, planned(hands, {0: 100}))
    second = planned(hands, {0: 200})
    request = hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(request, ErrorCode.UNKNOWN_TOPIC_ID))
    hands.until(m.OffsetFetchRequest)
    if ends_first:
        finish(hands, second)
    hands.answer(Channel.OFFSETS, committed({0: 0}))
    if not ends_first:
        finish(hands, second)
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 200}
    hands.answer(Channel.OFFSETS, all_of(request))
    (found,) = planned(hands, {0: 300}).ranges
    assert (found.from_offset, found.until_offset) == (200, 300)


def test_rows_that_are_written_again_after_a_log_was_cut_are_another_batch_for_spark() -> None:
    hands = Hands(fail_on_data_loss=False)
    hands.own(0, offsets={0: 5})
    first = hands.plan(ALL, ends({0: 10}), {key(0): 2})
    assert first is not None
    finish(hands, first)
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    hands.plan(ALL, ends({0: 10}), {key(0): 3})
    hands.pump()
    request = hands.until(m.OffsetForLeaderEpochRequest)
    assert isinstance(request, m.OffsetForLeaderEpochRequest)
    cut = m.OffsetForLeaderEpochResponse(ends=dict.fromkeys(request.lookups, m.EpochEnd(5, 2)))
    hands.answer(Channel.CLUSTER, cut)
    between = hands.plan(ALL, ends({0: 10}), {key(0): 3})
    assert between is not None
    assert not between.ranges, "Spark would take the same text for no news"
    finish(hands, between)
    again = hands.plan(ALL, ends({0: 10}), {key(0): 3})
    assert again == first
    finish(hands, again)
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert offsets_of(request) == {0: 10}


def test_larger_rebalance_time_out_does_not_hold_for_a_revocation_that_was_told_before() -> None:
    hands = Hands(rebalance_timeout_ms=10_000)
    hands.own(0, 1, offsets={0: 0, 1: 0})
    hands.client.called(hands.now)
    planned(hands, {0: 10, 1: 10})
    hands.beat(accepted(3, parts(0)))
    told_at = hands.client.member.revocation_told_at
    assert told_at is not None
    while not hands.find(PartitionsGivenUp):
        if isinstance(hands.request(Channel.HEARTBEAT), m.HeartbeatRequest):
            hands.answer(Channel.HEARTBEAT, accepted(3))
        hands.wait(0.5)
        if hands.now > told_at + 6 and not hands.find(RebalanceTimeoutRaised):
            hands.client.called(hands.now)
    assert hands.find(RebalanceTimeoutRaised)
    assert hands.find(PartitionsGivenUp)[0].at == pytest.approx(told_at + 9.0, abs=0.1)


OTHER = BatchPlan(
    "other", "old", 7, (OffsetRange(TOPIC, "orders", 0, 0, 5),), (ReadTopic(TOPIC, "orders", 2),)
)


def test_counts_come_from_the_checkpoint_and_go_into_the_plan() -> None:
    hands = Hands(checkpointed=BatchPlan("g", "old", 7, (), (ReadTopic(TOPIC, "orders", 2),)))
    hands.cluster()
    hands.beat(m.HeartbeatResponse(member_epoch=-1))
    hands.beat(accepted(2, parts(0, 2)))
    hands.cluster()
    hands.until(m.OffsetFetchRequest)
    nothing_known = m.OffsetAndMetadata(5)
    offsets = {key(each): nothing_known if each < 2 else NONE for each in range(4)}
    hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(offsets=offsets))
    request = hands.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    assert (request.partitions, request.timestamp_ms) == ({key(2)}, m.EARLIEST_TIMESTAMP)
    assert hands.find(PartitionsReadWhole) == []
    plan = hands.client.plan(ALL, ends({0: 9}), hands.now)
    assert plan is not None
    assert plan.topics == (ReadTopic(TOPIC, "orders", 2),)


@pytest.mark.parametrize("starting", StartingPoint)
def test_checkpoint_of_another_group_fails_the_query_before_anything_is_recorded(
    starting: StartingPoint,
) -> None:
    hands = Hands(StartingOffsets(starting), checkpointed=OTHER)
    hands.client.replay(OTHER, hands.now)
    hands.client.finish(OTHER, hands.now)
    hands.cluster()
    hands.beat(accepted(2, parts()))
    assert hands.client.plan(ALL, {}, hands.now) is None, "the checkpoint must not look like ours"
    hands.beat(accepted(3, parts(0)))
    hands.cluster()
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    with pytest.raises(CheckpointError, match="spark-groups reset-offsets g --from-group other "):
        hands.client.plan(ALL, {}, hands.now)
    for _ in range(20):
        hands.wait(0.3)
        assert not isinstance(hands.request(Channel.OFFSETS), m.OffsetFetchRequest)
    assert not hands.client.commits.pending()


def test_checkpoint_of_another_group_goes_on_where_this_one_has_committed() -> None:
    hands = Hands(checkpointed=OTHER)
    hands.client.finish(OTHER, hands.now)
    hands.own(0, offsets={0: 0})
    (told,) = hands.find(CheckpointOfAnotherGroup)
    assert isinstance(told, CheckpointOfAnotherGroup)
    assert (told.former_group_id, told.topics) == ("other", ("orders",))
    plan = planned(hands, {0: 7})
    assert plan.ranges == (OffsetRange(TOPIC, "orders", 0, 0, 7),), "nothing of it is inherited"
    assert plan.topics == (ReadTopic(TOPIC, "orders", 4),), "the count is that of this group"


def test_defaults_are_the_careful_ones() -> None:
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders")),
        starting_offsets=StartingOffsets(StartingPoint.LATEST),
    )
    assert (config.read_committed, config.fail_on_data_loss) == (False, True)
    assert config.liveness == LivenessLimits(max_idle_s=None)
