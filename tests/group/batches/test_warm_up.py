"""A run that is cold joins once its Python workers have started, if others read meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_groups.errors import ErrorCode, GroupError
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.warm_up import ASK_S, READ_BIT, WARM_UP_S
from spark_groups.group.ledger.events import RangesOverruled, WarmUpBegan, WarmUpEnded
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import MemberLeft
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.describe import DESCRIBE_AGAIN_S
from spark_groups.group.snapshot import take_snapshot
from spark_groups.monitoring.health import Condition, assess
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic
from tests.answers import fetch_answer
from tests.group.harness import NODE, TOPIC, ClientHarness, accepted, committed, ends, parts

OLD = BatchPlan(
    "g", "old", 7, (OffsetRange(TOPIC, "orders", 1, 0, 5),), (PlanTopic(TOPIC, "orders", 4),)
)
NO_TOPIC = m.MetadataResponse(errors={"orders": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})


def group_of(*member_ids: str, member_epoch: int = 3) -> m.DescribeGroupResponse:
    members = (m.DescribedMember(member_id=each, member_epoch=member_epoch) for each in member_ids)
    return m.DescribeGroupResponse(members=tuple(members), authorized_operations=READ_BIT)


def asking(checkpointed: BatchPlan | None = None, instance_id: str | None = None) -> ClientHarness:
    """A client that knows its coordinator and describes the group."""
    harness = ClientHarness(checkpointed=checkpointed, warm_up_tasks=3, instance_id=instance_id)
    harness.cluster()
    return harness


def warming(checkpointed: BatchPlan | None = None) -> ClientHarness:
    """A client whose next plan is the warm-up plan."""
    harness = asking(checkpointed)
    harness.answer(Channel.OFFSETS, group_of("other"))
    if checkpointed is not None:
        harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
        if checkpointed.ranges:
            harness.answer(Channel.OFFSETS, committed({1: 5}))
    assert harness.client.parts.warm_up.is_warming
    return harness


def warm_up_plan(harness: ClientHarness) -> BatchPlan:
    plan = harness.client.plan(PlanLimit(), {}, harness.now)
    harness.pump()
    assert plan is not None
    return plan


def why_it_joined(harness: ClientHarness) -> str:
    assert harness.client.parts.member.state is MemberState.JOINING
    assert isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    (event,) = harness.find(WarmUpEnded)
    assert isinstance(event, WarmUpEnded)
    return event.reason


def test_new_run_returns_a_warm_up_plan_and_joins_when_its_batch_is_finished() -> None:
    harness = warming()
    assert [type(each) for each in harness.find(WarmUpBegan)] == [WarmUpBegan]
    plan = warm_up_plan(harness)
    existing = (PlanTopic(TOPIC, "orders", 4, is_read=False),)
    known = {"topics": existing, "cluster_id": "the cluster"}
    assert plan == BatchPlan("g", "m1", 0, warm_up_tasks=3, **known)
    assert warm_up_plan(harness) is plan, "until it is proven finished"
    assert Channel.HEARTBEAT not in harness.under_way, "it is no member yet"
    harness.client.finish(plan, harness.now)
    harness.pump()
    assert why_it_joined(harness) == "the warm-up is over"
    harness.beat(accepted(4, parts(0)))
    harness.cluster()
    harness.beat(accepted(4))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 2}))
    first = harness.client.plan(PlanLimit(), ends({0: 9}), harness.now)
    assert first is not None
    assert (first.member_id, first.member_epoch, first.warm_up_tasks) == ("m1", 4, 0)
    assert [len(each) for each in first.ranges] == [7]


def test_no_second_empty_plan_names_the_member() -> None:
    harness = warming()
    harness.client.finish(warm_up_plan(harness), harness.now)
    harness.pump()
    harness.beat(accepted(4, parts()))
    assert harness.client.plan(PlanLimit(), {}, harness.now) is None


def test_restart_carries_over_topics_and_counts_and_forgets_committed_ranges() -> None:
    harness = asking(OLD)
    release = harness.request(Channel.HEARTBEAT)
    assert isinstance(release, m.HeartbeatRequest)
    assert (release.member_id, release.member_epoch) == ("old", -1)
    harness.answer(Channel.OFFSETS, group_of("old", "other"))
    assert Channel.OFFSETS not in harness.under_way, "offsets are fetched after the release"
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    fetch = harness.request(Channel.OFFSETS)
    assert fetch == m.OffsetFetchRequest(group_id="g", partitions=OLD.partitions())
    harness.client.finish(OLD, harness.now)
    harness.answer(Channel.OFFSETS, committed({1: 5}))
    plan = warm_up_plan(harness)
    assert (plan.ranges, plan.topics) == ((), (PlanTopic(TOPIC, "orders", 4),))
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.beat(accepted(4, parts(1)))
    harness.cluster()
    harness.beat(accepted(4))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({1: 9}))
    harness.client.plan(PlanLimit(), ends({1: 9}), harness.now)
    assert not harness.find(RangesOverruled), "others read on while this run warmed up"


def test_topic_that_was_created_again_keeps_its_old_id_in_the_checkpoint() -> None:
    harness = warming(OLD)
    harness.client.parts.topics.learn(m.TopicMetadata(uuid.UUID(int=99), "orders", 4))
    assert warm_up_plan(harness).topics == OLD.topics, (
        "otherwise the next run takes it for a topic that was there from the beginning"
    )


@pytest.mark.parametrize("offset", [0, 3, None])
def test_checkpoint_with_an_uncommitted_batch_is_not_replaced(offset: int | None) -> None:
    harness = asking(OLD)
    harness.answer(Channel.OFFSETS, group_of("other"))
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    harness.answer(Channel.OFFSETS, committed({} if offset is None else {1: offset}))
    assert why_it_joined(harness) == "the checkpoint's last batch is not committed"


def test_partition_whose_offset_cannot_be_fetched_counts_as_uncommitted() -> None:
    harness = asking(OLD)
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    harness.answer(Channel.OFFSETS, group_of("other"))
    code = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    errors = dict.fromkeys(OLD.partitions(), code)
    harness.answer(Channel.OFFSETS, fetch_answer(errors=errors))
    assert why_it_joined(harness) == "the checkpoint's last batch is not committed"


ALONE = "no other member reads"
REFUSALS: dict[str, tuple[m.DescribeGroupResponse, str]] = {
    "an empty group": (group_of(), ALONE),
    "only the predecessor": (group_of("old"), ALONE),
    "a static member that is away": (group_of("i1", member_epoch=-2), ALONE),
    "no READ": (replace(group_of("other"), authorized_operations=1 << 8), "may not be allowed"),
    "unknown rights": (
        replace(group_of("other"), authorized_operations=m.UNKNOWN_AUTHORIZED_OPERATIONS),
        "may not be allowed",
    ),
    "no such group": (
        m.DescribeGroupResponse(error_code=int(ErrorCode.GROUP_ID_NOT_FOUND)),
        "no members of the consumer protocol",
    ),
    "no DESCRIBE": (
        m.DescribeGroupResponse(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED)),
        "unknown whether other members read meanwhile: GROUP_AUTHORIZATION_FAILED",
    ),
}


@pytest.mark.parametrize(("response", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_anything_but_a_clear_yes_joins_at_once(
    response: m.DescribeGroupResponse, reason: str
) -> None:
    harness = asking(replace(OLD, ranges=()))
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    harness.answer(Channel.OFFSETS, response)
    assert reason in why_it_joined(harness)
    assert not harness.client.parts.warm_up.is_warming


def test_unanswered_description_joins_at_once() -> None:
    harness = asking()
    harness.fail(Channel.OFFSETS)
    assert why_it_joined(harness).endswith("no answer")


def test_missing_coordinator_delays_the_join_no_longer_than_the_questions_may_take() -> None:
    harness = ClientHarness(warm_up_tasks=3)
    harness.wait(ASK_S - 0.1)
    assert harness.client.parts.member.state is MemberState.WARMING_UP
    harness.wait(0.2)
    assert harness.client.parts.member.state is MemberState.JOINING
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    assert f"no answer within {ASK_S:g} s" in why_it_joined(harness)


def test_topic_without_rights_fails_before_the_warm_up() -> None:
    harness = ClientHarness(warm_up_tasks=3)
    harness.answer(Channel.CLUSTER, NO_TOPIC)
    with pytest.raises(GroupError, match="TOPIC_AUTHORIZATION_FAILED"):
        harness.client.check()
    harness.wait(10.0)
    assert harness.client.next_wakeup(harness.now) is None


def test_group_without_rights_fails_before_the_warm_up() -> None:
    harness = ClientHarness(warm_up_tasks=3)
    denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(error_code=denied))
    with pytest.raises(GroupError, match="GROUP_AUTHORIZATION_FAILED"):
        harness.client.check()


def test_predecessor_is_released_before_the_warm_up_plan() -> None:
    harness = asking(replace(OLD, ranges=()))
    harness.answer(Channel.OFFSETS, group_of("other"))
    assert not harness.client.parts.warm_up.is_warming
    assert harness.client.plan(PlanLimit(), {}, harness.now) is None
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    assert harness.client.parts.warm_up.is_warming


def test_member_joins_when_no_other_member_reads_any_more() -> None:
    harness = warming()
    plan = warm_up_plan(harness)
    harness.until(m.DescribeGroupRequest, DESCRIBE_AGAIN_S)
    harness.answer(
        Channel.OFFSETS, m.DescribeGroupResponse(error_code=int(ErrorCode.NOT_COORDINATOR))
    )
    assert harness.client.parts.warm_up.is_warming, "an error proves nothing"
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    harness.until(m.DescribeGroupRequest, DESCRIBE_AGAIN_S)
    harness.fail(Channel.OFFSETS)
    harness.until(m.DescribeGroupRequest, DESCRIBE_AGAIN_S)
    harness.answer(Channel.OFFSETS, group_of())
    assert why_it_joined(harness) == ALONE
    assert harness.client.plan(PlanLimit(), {}, harness.now) is plan, "its batch still runs"


def test_member_joins_when_the_warm_up_takes_too_long() -> None:
    harness = warming()
    plan = warm_up_plan(harness)
    for _ in range(5):
        harness.until(m.DescribeGroupRequest)
        harness.answer(Channel.OFFSETS, group_of("other"))
    harness.wait(WARM_UP_S - harness.now - 0.1)
    assert harness.client.parts.member.state is MemberState.WARMING_UP
    harness.wait(0.2)
    assert why_it_joined(harness) == f"the warm-up takes {WARM_UP_S:g} s"
    harness.client.finish(plan, harness.now)
    assert len(harness.find(WarmUpEnded)) == 1


def test_replayed_batch_is_the_warm_up() -> None:
    harness = asking(OLD)
    harness.client.replay(OLD, harness.now)
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-1))
    assert "runs a batch again" in why_it_joined(harness)


def test_these_join_at_once() -> None:
    assert ClientHarness().client.parts.member.state is MemberState.JOINING
    other_group = ClientHarness(warm_up_tasks=3, checkpointed=replace(OLD, group_id="f"))
    assert other_group.client.parts.member.state is MemberState.JOINING
    assert len(other_group.find(WarmUpEnded)) == 1


@pytest.mark.parametrize("member_epoch", [-2, 3], ids=["away", "not known to be dead"])
def test_static_member_whose_partitions_wait_for_it_joins_at_once(member_epoch: int) -> None:
    harness = asking(OLD, "i1")
    mine = m.DescribedMember(member_id="old", member_epoch=member_epoch, instance_id="i1")
    others = group_of("other")
    harness.answer(Channel.OFFSETS, replace(others, members=(*others.members, mine)))
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_epoch=-2))
    assert why_it_joined(harness) == "a static member keeps its partitions while it is away"


def test_static_member_warms_up_if_others_read_since_its_session_expired() -> None:
    harness = asking(replace(OLD, ranges=()), "i1")
    gone = m.HeartbeatResponse(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
    for epoch in (-2, -1):
        release = harness.request(Channel.HEARTBEAT)
        assert isinstance(release, m.HeartbeatRequest)
        assert release.member_epoch == epoch
        harness.answer(Channel.HEARTBEAT, gone)
    others = group_of("other")
    another = m.DescribedMember(member_id="away", member_epoch=-2, instance_id="i2")
    harness.answer(Channel.OFFSETS, replace(others, members=(*others.members, another)))
    assert warm_up_plan(harness).warm_up_tasks == 3


def test_available_now_joins_at_once() -> None:
    harness = ClientHarness(warm_up_tasks=3, available_now=True)
    assert harness.client.parts.member.state is MemberState.JOINING


@pytest.mark.parametrize("begin", [asking, warming], ids=["asking", "warming"])
def test_leave_before_the_join_sends_nothing(begin: Callable[[], ClientHarness]) -> None:
    harness = begin()
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    harness.pump()
    assert harness.client.parts.member.has_left
    assert harness.find(MemberLeft)
    assert Channel.HEARTBEAT not in harness.under_way
    assert not harness.client.parts.warm_up.is_warming


def test_health_says_that_it_is_no_member_yet() -> None:
    harness = warming()
    harness.client.called(harness.now)
    warm_up_plan(harness)
    view = take_snapshot(harness.client, harness.now)
    assert (view.state, view.in_flight) == (MemberState.WARMING_UP, ())
    health = assess(view)
    assert (health.condition, health.is_live, health.is_ready) == (Condition.OUTSIDE, True, False)
    assert "when its query has warmed up" in health.reasons[0]
