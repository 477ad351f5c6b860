"""What answers mean: commits and their look-ups, topics that come and go, final refusals."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import (
    CommitRefused,
    CoordinatorFound,
    OffsetsCommitted,
    TopicGone,
    TopicRecreated,
    TopicsMissing,
)
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member import messages as m
from spark_groups.group.member.grant_command import Identity
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Assignment
from tests.answers import fetch_answer, list_answer
from tests.group.harness import (
    NODE,
    TOPIC,
    ClientHarness,
    accepted,
    all_of,
    committed,
    ends,
    key,
    offsets_of,
    parts,
)


def finished(harness: ClientHarness, *offsets: int) -> m.OffsetCommitRequest:
    """Finish a batch up to some offsets; its commit is under way."""
    wanted = ends(dict(enumerate(offsets)))
    plan = harness.client.plan(PlanLimit(), wanted, harness.now)
    assert plan is not None
    harness.client.finish(plan, harness.now)
    harness.pump()
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    return request


def test_answer_of_another_kind_is_a_bug() -> None:
    harness = ClientHarness()
    with pytest.raises(TypeError, match="is no answer to"):
        harness.answer(Channel.SEARCH, m.MetadataResponse())


def test_coordinator_change_is_reported() -> None:
    harness = ClientHarness()
    harness.cluster()
    assert [str(e.node) for e in harness.find(CoordinatorFound)] == ["broker:9092 (id 1)"]


def test_commit_refused_as_stale_while_a_heartbeat_is_under_way_waits_for_the_next() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = harness.client.plan(PlanLimit(), ends({0: 5}), harness.now)
    assert plan is not None
    harness.beat(accepted(2))
    harness.wait(1)
    harness.client.finish(plan, harness.now)
    harness.pump()
    assert harness.request(Channel.HEARTBEAT) is not None
    harness.wait(0.01)
    refused = all_of(harness.request(Channel.OFFSETS), ErrorCode.STALE_MEMBER_EPOCH)
    harness.answer(Channel.OFFSETS, refused)
    refused_at = harness.now
    harness.beat(accepted(3))
    harness.beat(accepted(3))
    assert harness.now == refused_at, "the one that was under way proves nothing, the next does"
    assert isinstance(harness.request(Channel.OFFSETS), m.OffsetCommitRequest)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION])
def test_commit_refused_as_stale_goes_again_with_the_newer_epoch(code: ErrorCode) -> None:
    harness = ClientHarness()
    harness.own(0)
    harness.wait(0.1)
    request = finished(harness, 5)
    harness.wait(0.01)
    harness.answer(Channel.OFFSETS, all_of(request, code))
    assert [each.error for each in harness.find(CommitRefused)] == [code.name]
    assert Channel.OFFSETS not in harness.under_way, "it waits for a heartbeat"
    refused_at = harness.now
    harness.beat(accepted(3))
    again = harness.request(Channel.OFFSETS)
    assert harness.now == refused_at, "one heartbeat, sent at once, is enough"
    assert isinstance(again, m.OffsetCommitRequest)
    assert (again.member_epoch, offsets_of(again)) == (3, {0: 5})
    harness.answer(Channel.OFFSETS, all_of(again))
    assert [e.member_epoch for e in harness.find(OffsetsCommitted)] == [3]
    assert harness.client.parts.commits.refused == 1


def test_commit_without_an_answer_is_sent_again_and_looked_up() -> None:
    harness = ClientHarness()
    harness.own(0)
    finished(harness, 5)
    harness.fail(Channel.OFFSETS)
    harness.cluster()
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request))
    assert harness.client.parts.commits.pending() == {key(0)}, "not before it was looked up"
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 3}))
    again = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(again))
    harness.until(m.OffsetFetchRequest)
    assert isinstance(again, m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, fetch_answer(offsets=again.offsets))
    assert not harness.client.parts.commits.pending()


def test_look_up_that_is_refused_for_now_pauses() -> None:
    harness = ClientHarness()
    harness.own(0)
    finished(harness, 5)
    harness.fail(Channel.OFFSETS)
    harness.cluster()
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    times = []
    for _ in range(5):
        harness.until(m.OffsetFetchRequest)
        times.append(harness.now)
        errors = {key(0): int(ErrorCode.UNSTABLE_OFFSET_COMMIT)}
        harness.answer(Channel.OFFSETS, fetch_answer(errors=errors))
    assert times[-1] - times[0] == pytest.approx(1.5)


def test_look_up_of_a_topic_that_is_gone_ends_the_commit() -> None:
    harness = ClientHarness()
    harness.own(0)
    finished(harness, 5)
    harness.fail(Channel.OFFSETS)
    harness.cluster()
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    harness.until(m.OffsetFetchRequest)
    errors = {key(0): int(ErrorCode.UNKNOWN_TOPIC_ID)}
    harness.answer(Channel.OFFSETS, fetch_answer(errors=errors))
    assert not harness.client.parts.commits.pending()
    assert len(harness.find(TopicGone)) == 1


def test_commit_of_a_deleted_topic_is_dropped_and_reported() -> None:
    harness = ClientHarness()
    harness.own(0)
    request = finished(harness, 5)
    harness.answer(Channel.OFFSETS, all_of(request, ErrorCode.UNKNOWN_TOPIC_ID))
    assert not harness.client.parts.commits.pending()
    assert len(harness.find(TopicGone)) == 1


def settling(harness: ClientHarness) -> m.OffsetCommitRequest:
    """Join as the first of a group under "latest"; where it starts is being committed."""
    harness.cluster()
    harness.beat(accepted(2, parts(0)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    request = harness.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    harness.answer(Channel.CLUSTER, list_answer(offsets={key(0): 40}))
    commit = harness.until(m.OffsetCommitRequest)
    assert isinstance(commit, m.OffsetCommitRequest)
    return commit


def test_start_in_a_topic_unknown_to_the_coordinator_is_resolved_again() -> None:
    """Right after a topic is created not every broker knows its id; it is read all the same."""
    harness = ClientHarness()
    commit = settling(harness)
    before = harness.now
    harness.answer(Channel.OFFSETS, all_of(commit, ErrorCode.UNKNOWN_TOPIC_ID))
    assert harness.client.parts.ledger.owned[key(0)].phase is Phase.FETCHING
    harness.until(m.OffsetFetchRequest)
    assert harness.now - before >= 0.1
    harness.answer(Channel.OFFSETS, committed({}))
    harness.until(m.ListOffsetsRequest)
    harness.answer(Channel.CLUSTER, list_answer(offsets={key(0): 41}))
    again = harness.until(m.OffsetCommitRequest)
    assert isinstance(again, m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(again))
    assert harness.client.parts.ledger.owned[key(0)].phase is Phase.READY


def test_revocation_waits_until_the_start_is_committed() -> None:
    harness = ClientHarness()
    commit = settling(harness)
    harness.beat(accepted(2))
    harness.beat(accepted(2, parts()))
    assert harness.client.parts.member.state is MemberState.RECONCILING
    harness.answer(Channel.OFFSETS, all_of(commit))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


def test_revocation_of_a_topic_that_is_gone_does_not_wait_for_its_start() -> None:
    harness = ClientHarness()
    commit = settling(harness)
    harness.beat(accepted(2))
    harness.beat(accepted(2, parts()))
    harness.answer(Channel.OFFSETS, all_of(commit, ErrorCode.UNKNOWN_TOPIC_ID))
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


def test_revocation_of_a_topic_without_a_name_does_not_wait_for_its_start() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, Assignment.of({uuid.UUID(int=99): (0,)})))
    harness.beat(accepted(2))
    harness.beat(accepted(2, parts()))
    assert harness.client.parts.member.state is MemberState.RECONCILING
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


@pytest.mark.parametrize(
    ("code", "new_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, True), (ErrorCode.FENCED_MEMBER_EPOCH, False)],
)
def test_commit_that_tells_of_a_loss_loses_everything(code: ErrorCode, new_id: bool) -> None:
    harness = ClientHarness()
    harness.own(0)
    harness.answer(Channel.OFFSETS, all_of(finished(harness, 5), code))
    assert not harness.client.parts.member.owned
    assert not harness.client.parts.commits.pending()
    join = harness.beat(accepted(5, parts()))
    assert (join.member_epoch, join.member_id) == (0, "m2" if new_id else "m1")


def test_answer_to_a_fetch_of_an_earlier_life_is_ignored() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(0)))
    harness.until(m.OffsetFetchRequest)
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    harness.answer(Channel.OFFSETS, m.OffsetFetchResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    harness.beat(accepted(4, parts(0)))
    assert (harness.client.parts.member.member_id, harness.client.parts.member.member_epoch) == (
        "m2",
        4,
    )


def test_recreated_topic_is_reported_with_its_unread_rows() -> None:
    harness = ClientHarness()
    harness.own(0)
    finished(harness, 5)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    harness.client.plan(PlanLimit(max_offsets=1), ends({0: 12}), harness.now)
    plan = harness.client.parts.ledger.in_flight
    assert plan is not None
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    new_id = uuid.UUID(int=2)
    for assignment in (parts(), parts(0), parts()):
        harness.beat(accepted(3, assignment))
        harness.beat(accepted(3))
        while isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest):
            harness.answer(Channel.OFFSETS, committed({0: 6}))
    harness.beat(accepted(3, Assignment.of({new_id: (0,)})))
    harness.cluster(m.TopicMetadata(new_id, "orders", 4))
    (event,) = harness.find(TopicRecreated)
    assert isinstance(event, TopicRecreated)
    assert (event.old_id, event.new_id) == (TOPIC, new_id)
    assert event.unread.known == 0, "a partition that moved away and came back is not unread"


def test_missing_topics_are_reported_once_and_start_at_the_beginning_later() -> None:
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    (event,) = harness.find(TopicsMissing)
    assert isinstance(event, TopicsMissing)
    assert event.names == ("orders",)
    assert event.text(str) == "no such topic yet: orders; waiting for it"
    harness.beat(accepted(2, parts(0)))
    harness.cluster()
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    request = harness.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    assert request.timestamp_ms == EARLIEST_TIMESTAMP


def test_missing_topic_is_reported_with_the_name_that_was_meant() -> None:
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    request = harness.request(Channel.CLUSTER)
    assert isinstance(request, m.MetadataRequest)
    assert request.wants_near
    harness.answer(Channel.CLUSTER, m.MetadataResponse(near={"orders": "order"}))
    (event,) = harness.find(TopicsMissing)
    said = "no such topic yet: orders (did you mean 'order'?); waiting for it"
    assert event.text(str) == said


def test_topic_that_is_named_late_starts_where_the_query_is_to_start() -> None:
    """The group is settled before the first question about the topic is answered."""
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    errors = {"orders": int(ErrorCode.LEADER_NOT_AVAILABLE)}
    harness.answer(Channel.CLUSTER, m.MetadataResponse(errors=errors))
    harness.beat(accepted(2, parts(0, 1, 2, 3)))
    assert harness.client.parts.target.settled(2)
    harness.until(m.MetadataRequest)
    harness.cluster()
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    listed = harness.until(m.ListOffsetsRequest)
    assert isinstance(listed, m.ListOffsetsRequest)
    assert listed.timestamp_ms == LATEST_TIMESTAMP


def test_topic_that_may_not_be_seen_is_final() -> None:
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    refusal = m.MetadataResponse(errors={"orders": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    harness.answer(Channel.CLUSTER, refusal)
    assert harness.client.parts.member.state is MemberState.FATAL
    assert "Metadata of topic orders" in (harness.client.parts.member.failure or "")
    assert "READ and DESCRIBE" in (harness.client.parts.member.failure or "")


ALICE = Identity(principal="User:alice", bootstrap_servers=("b:9092",))


def test_a_right_that_is_missing_is_granted_by_the_command_in_the_error() -> None:
    harness = ClientHarness(identity=ALICE)
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    refusal = m.MetadataResponse(errors={"orders": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    harness.answer(Channel.CLUSTER, refusal)
    failure = harness.client.parts.member.failure or ""
    assert "the principal User:alice needs READ and DESCRIBE" in failure
    assert "kafka-acls.sh --bootstrap-server b:9092" in failure
    assert failure.endswith("--operation Describe --topic orders")


@pytest.mark.parametrize("may_describe", [True, False])
def test_topic_that_comes_later_starts_at_its_beginning_without_describe_permission(
    may_describe: bool,
) -> None:
    later = uuid.UUID(int=2)
    harness = ClientHarness()
    harness.describes = may_describe
    harness.own(0)
    if not may_describe:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        harness.answer(Channel.OFFSETS, m.DescribeGroupResponse(error_code=code))
    both = Assignment.of({TOPIC: [0], later: [0]})
    harness.beat(accepted(3, both))
    harness.until(m.MetadataRequest)
    harness.cluster(m.TopicMetadata(later, "orders-2", 2))
    assert harness.client.parts.topics.first_count(TOPIC) == 4
    assert harness.client.parts.topics.first_count(later) == 0
