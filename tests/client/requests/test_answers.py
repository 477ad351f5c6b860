"""What answers mean: commits and their look-ups, topics that come and go, final refusals."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.client import Channel
from spark_groups.errors import ErrorCode
from spark_groups.offsets.events import (
    CommitRefused,
    CoordinatorFound,
    OffsetsCommitted,
    TopicGone,
    TopicRecreated,
    TopicsMissing,
)
from spark_groups.offsets.ledger import Phase
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from spark_groups.protocol.membership import MemberState
from spark_groups.protocol.rights import Identity
from spark_groups.types import Assignment
from tests.client.hands import (
    NODE,
    TOPIC,
    Hands,
    accepted,
    all_of,
    committed,
    ends,
    key,
    offsets_of,
    parts,
)


def finished(hands: Hands, *offsets: int) -> m.OffsetCommitRequest:
    """Finish a batch up to some offsets; its commit is under way."""
    wanted = ends(dict(enumerate(offsets)))
    plan = hands.client.plan(PlanLimit(), wanted, hands.now)
    assert plan is not None
    hands.client.finish(plan, hands.now)
    hands.pump()
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    return request


def test_answer_of_another_kind_is_a_bug() -> None:
    hands = Hands()
    with pytest.raises(TypeError, match="is no answer to"):
        hands.answer(Channel.SEARCH, m.MetadataResponse())


def test_coordinator_is_told() -> None:
    hands = Hands()
    hands.cluster()
    assert [str(e.node) for e in hands.find(CoordinatorFound)] == ["broker:9092 (id 1)"]


def test_commit_refused_as_stale_while_a_heartbeat_is_under_way_waits_for_the_next() -> None:
    hands = Hands()
    hands.own(0)
    plan = hands.client.plan(PlanLimit(), ends({0: 5}), hands.now)
    assert plan is not None
    hands.beat(accepted(2))
    hands.wait(1)
    hands.client.finish(plan, hands.now)
    hands.pump()
    assert hands.request(Channel.HEARTBEAT) is not None
    hands.wait(0.01)
    refused = all_of(hands.request(Channel.OFFSETS), ErrorCode.STALE_MEMBER_EPOCH)
    hands.answer(Channel.OFFSETS, refused)
    refused_at = hands.now
    hands.beat(accepted(3))
    hands.beat(accepted(3))
    assert hands.now == refused_at, "the one that was under way proves nothing, the next does"
    assert isinstance(hands.request(Channel.OFFSETS), m.OffsetCommitRequest)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION])
def test_commit_refused_as_stale_goes_again_with_the_newer_epoch(code: ErrorCode) -> None:
    hands = Hands()
    hands.own(0)
    hands.wait(0.1)
    request = finished(hands, 5)
    hands.wait(0.01)
    hands.answer(Channel.OFFSETS, all_of(request, code))
    assert [each.error for each in hands.find(CommitRefused)] == [code.name]
    assert Channel.OFFSETS not in hands.under_way, "it waits for a heartbeat"
    refused_at = hands.now
    hands.beat(accepted(3))
    again = hands.request(Channel.OFFSETS)
    assert hands.now == refused_at, "one heartbeat, sent at once, is enough"
    assert isinstance(again, m.OffsetCommitRequest)
    assert (again.member_epoch, offsets_of(again)) == (3, {0: 5})
    hands.answer(Channel.OFFSETS, all_of(again))
    assert [e.member_epoch for e in hands.find(OffsetsCommitted)] == [3]
    assert hands.client.commits.refused == 1


def test_commit_without_an_answer_is_sent_again_and_looked_up() -> None:
    hands = Hands()
    hands.own(0)
    finished(hands, 5)
    hands.fail(Channel.OFFSETS)
    hands.cluster()
    request = hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(request))
    assert hands.client.commits.pending() == {key(0)}, "not before it was looked up"
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 3}))
    again = hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(again))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 5}))
    assert not hands.client.commits.pending()


def test_look_up_that_is_refused_for_now_pauses() -> None:
    hands = Hands()
    hands.own(0)
    finished(hands, 5)
    hands.fail(Channel.OFFSETS)
    hands.cluster()
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    times = []
    for _ in range(5):
        hands.until(m.OffsetFetchRequest)
        times.append(hands.now)
        errors = {key(0): int(ErrorCode.UNSTABLE_OFFSET_COMMIT)}
        hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(errors=errors))
    assert times[-1] - times[0] == pytest.approx(1.5)


def test_look_up_of_a_topic_that_is_gone_ends_the_commit() -> None:
    hands = Hands()
    hands.own(0)
    finished(hands, 5)
    hands.fail(Channel.OFFSETS)
    hands.cluster()
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    hands.until(m.OffsetFetchRequest)
    errors = {key(0): int(ErrorCode.UNKNOWN_TOPIC_ID)}
    hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(errors=errors))
    assert not hands.client.commits.pending()
    assert len(hands.find(TopicGone)) == 1


def test_commit_of_a_topic_that_is_gone_is_dropped_and_told() -> None:
    hands = Hands()
    hands.own(0)
    request = finished(hands, 5)
    hands.answer(Channel.OFFSETS, all_of(request, ErrorCode.UNKNOWN_TOPIC_ID))
    assert not hands.client.commits.pending()
    assert len(hands.find(TopicGone)) == 1


def settling(hands: Hands) -> m.OffsetCommitRequest:
    """Join as the first of a group under "latest"; where it starts is being committed."""
    hands.cluster()
    hands.beat(accepted(2, parts(0)))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    request = hands.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    hands.answer(Channel.CLUSTER, m.ListOffsetsResponse(offsets={key(0): 40}))
    commit = hands.until(m.OffsetCommitRequest)
    assert isinstance(commit, m.OffsetCommitRequest)
    return commit


def test_start_whose_topic_the_coordinator_does_not_know_yet_is_found_anew() -> None:
    """Right after a topic is created not every broker knows its id; it is read all the same."""
    hands = Hands()
    commit = settling(hands)
    before = hands.now
    hands.answer(Channel.OFFSETS, all_of(commit, ErrorCode.UNKNOWN_TOPIC_ID))
    assert hands.client.ledger.owned[key(0)].phase is Phase.FETCHING
    hands.until(m.OffsetFetchRequest)
    assert hands.now - before >= 0.1
    hands.answer(Channel.OFFSETS, committed({}))
    hands.until(m.ListOffsetsRequest)
    hands.answer(Channel.CLUSTER, m.ListOffsetsResponse(offsets={key(0): 41}))
    again = hands.until(m.OffsetCommitRequest)
    assert isinstance(again, m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(again))
    assert hands.client.ledger.owned[key(0)].phase is Phase.READY


def test_revocation_waits_until_the_start_is_committed() -> None:
    hands = Hands()
    commit = settling(hands)
    hands.beat(accepted(2))
    hands.beat(accepted(2, parts()))
    assert hands.client.member.state is MemberState.RECONCILING
    hands.answer(Channel.OFFSETS, all_of(commit))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_revocation_of_a_topic_that_is_gone_does_not_wait_for_its_start() -> None:
    hands = Hands()
    commit = settling(hands)
    hands.beat(accepted(2))
    hands.beat(accepted(2, parts()))
    hands.answer(Channel.OFFSETS, all_of(commit, ErrorCode.UNKNOWN_TOPIC_ID))
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_revocation_of_a_topic_nobody_can_name_does_not_wait_for_its_start() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, Assignment.of({uuid.UUID(int=99): (0,)})))
    hands.beat(accepted(2))
    hands.beat(accepted(2, parts()))
    assert hands.client.member.state is MemberState.RECONCILING
    hands.answer(Channel.CLUSTER, m.MetadataResponse())
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


@pytest.mark.parametrize(
    ("code", "new_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, True), (ErrorCode.FENCED_MEMBER_EPOCH, False)],
)
def test_commit_that_tells_of_a_loss_loses_everything(code: ErrorCode, new_id: bool) -> None:
    hands = Hands()
    hands.own(0)
    hands.answer(Channel.OFFSETS, all_of(finished(hands, 5), code))
    assert not hands.client.member.owned
    assert not hands.client.commits.pending()
    join = hands.beat(accepted(5, parts()))
    assert (join.member_epoch, join.member_id) == (0, "m2" if new_id else "m1")


def test_answer_to_a_fetch_of_an_earlier_life_is_ignored() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, parts(0)))
    hands.until(m.OffsetFetchRequest)
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    hands.beat(accepted(4, parts(0)))
    assert (hands.client.member.member_id, hands.client.member.member_epoch) == ("m2", 4)


def test_topic_that_was_created_again_is_told_with_what_was_left_unread() -> None:
    hands = Hands()
    hands.own(0)
    finished(hands, 5)
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    hands.client.plan(PlanLimit(max_offsets=1), ends({0: 12}), hands.now)
    plan = hands.client.ledger.in_flight
    assert plan is not None
    hands.client.finish(plan, hands.now)
    hands.pump()
    hands.answer(Channel.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    new_id = uuid.UUID(int=2)
    for assignment in (parts(), parts(0), parts()):
        hands.beat(accepted(3, assignment))
        hands.beat(accepted(3))
        while isinstance(hands.request(Channel.OFFSETS), m.OffsetFetchRequest):
            hands.answer(Channel.OFFSETS, committed({0: 6}))
    hands.beat(accepted(3, Assignment.of({new_id: (0,)})))
    hands.cluster(m.TopicMetadata(new_id, "orders", 4))
    (event,) = hands.find(TopicRecreated)
    assert isinstance(event, TopicRecreated)
    assert (event.old_id, event.new_id) == (TOPIC, new_id)
    assert event.unread == 0, "what was moved away and came back was not left behind"


def test_missing_topics_are_told_once_and_start_at_the_beginning_later() -> None:
    hands = Hands()
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    hands.answer(Channel.CLUSTER, m.MetadataResponse())
    (event,) = hands.find(TopicsMissing)
    assert isinstance(event, TopicsMissing)
    assert event.names == ("orders",)
    hands.beat(accepted(2, parts(0)))
    hands.cluster()
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    request = hands.until(m.ListOffsetsRequest)
    assert isinstance(request, m.ListOffsetsRequest)
    assert request.timestamp_ms == m.EARLIEST_TIMESTAMP


def test_topic_that_is_named_late_starts_where_the_query_is_to_start() -> None:
    """The group is settled before the first question about the topic is answered."""
    hands = Hands()
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    errors = {"orders": int(ErrorCode.LEADER_NOT_AVAILABLE)}
    hands.answer(Channel.CLUSTER, m.MetadataResponse(errors=errors))
    hands.beat(accepted(2, parts(0, 1, 2, 3)))
    assert hands.client.target.settled(2)
    hands.until(m.MetadataRequest)
    hands.cluster()
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    listed = hands.until(m.ListOffsetsRequest)
    assert isinstance(listed, m.ListOffsetsRequest)
    assert listed.timestamp_ms == m.LATEST_TIMESTAMP


def test_topic_that_may_not_be_seen_is_final() -> None:
    hands = Hands()
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    refusal = m.MetadataResponse(errors={"orders": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    hands.answer(Channel.CLUSTER, refusal)
    assert hands.client.member.state is MemberState.FATAL
    assert "Metadata of topic orders" in (hands.client.member.failure or "")
    assert "READ and DESCRIBE" in (hands.client.member.failure or "")


ALICE = Identity(principal="User:alice", bootstrap_servers=("b:9092",))


def test_a_right_that_is_missing_is_granted_by_the_command_in_the_error() -> None:
    hands = Hands(identity=ALICE)
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=m.Node(1, "b", 1)))
    refusal = m.MetadataResponse(errors={"orders": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    hands.answer(Channel.CLUSTER, refusal)
    failure = hands.client.member.failure or ""
    assert "the principal User:alice needs READ and DESCRIBE" in failure
    assert "kafka-acls.sh --bootstrap-server b:9092" in failure
    assert failure.endswith("--operation Describe --topic orders")


@pytest.mark.parametrize("may_describe", [True, False])
def test_topic_that_comes_later_starts_at_its_beginning_also_where_nobody_may_describe(
    may_describe: bool,
) -> None:
    later = uuid.UUID(int=2)
    hands = Hands()
    hands.describes = may_describe
    hands.own(0)
    if not may_describe:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        hands.answer(Channel.OFFSETS, m.DescribeGroupResponse(error_code=code))
    both = Assignment.of({TOPIC: [0], later: [0]})
    hands.beat(accepted(3, both))
    hands.until(m.MetadataRequest)
    hands.cluster(m.TopicMetadata(later, "orders-2", 2))
    assert hands.client.topics.first_count(TOPIC) == 4
    assert hands.client.topics.first_count(later) == 0
