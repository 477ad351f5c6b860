"""Whether more is to come, and what waits in pending partitions."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import RangesWithheld, WithheldRange
from spark_groups.group.member import messages as m
from spark_groups.group.member.messages import DescribedMember, DescribeGroupResponse
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.describe import (
    DESCRIBE_AGAIN_S,
    DESCRIBE_SPACING_S,
    EMPTY_TARGET_AGAIN_S,
    EMPTY_TARGET_DOUBT_S,
    MAX_RESOLVED,
    REFUSED_AGAIN_S,
    RESOLVE_AGAIN_S,
    PendingOffsets,
    TargetAssignment,
)
from spark_groups.group.snapshot import take_snapshot
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition
from tests.answers import fetch_answer
from tests.group.harness import (
    TOPIC,
    ClientHarness,
    accepted,
    committed,
    described,
    ends,
    key,
    parts,
)


def description(
    *, target: Assignment, group_epoch: int = 5, assignment_epoch: int = 5, member_epoch: int = 5
) -> DescribeGroupResponse:
    member = DescribedMember(
        member_id="m1", member_epoch=member_epoch, assignment=target, target_assignment=target
    )
    other = DescribedMember(member_id="m2", member_epoch=9, target_assignment=parts(3))
    return DescribeGroupResponse(
        group_state="Reconciling",
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        members=(other, member),
    )


def take(
    watch: TargetAssignment,
    response: DescribeGroupResponse,
    *,
    owned: Assignment = NO_PARTITIONS,
    now: float = 1.0,
) -> bool | None:
    return watch.handle_response(response, member_id="m1", member_epoch=5, owned=owned, now=now)


def test_nothing_is_asked_before_something_changed() -> None:
    assert TargetAssignment().due_at is None


def test_changes_are_asked_about_soon_but_not_in_a_crowd() -> None:
    watch = TargetAssignment()
    watch.changed(1.0)
    assert watch.due_at == 1.0
    watch.asked(1.0)
    assert watch.due_at is None
    watch.changed(1.1)
    assert watch.due_at == pytest.approx(1.0 + DESCRIBE_SPACING_S)


def test_refusal_for_good_is_remembered_and_seldom_asked_about_until_there_is_a_description() -> (
    None
):
    watch = TargetAssignment()
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT):
        assert take(watch, DescribeGroupResponse(error_code=code)) is None
        assert watch.is_refused
        assert not watch.settled(5)
    watch = TargetAssignment()
    take(watch, DescribeGroupResponse(error_code=9999))
    assert watch.due_at == 1.0 + REFUSED_AGAIN_S
    take(watch, description(target=NO_PARTITIONS))
    assert not watch.is_refused


def test_nothing_is_not_believed_at_once() -> None:
    watch = TargetAssignment()
    assert take(watch, description(target=NO_PARTITIONS), now=1.0) is True
    assert not watch.settled(5)
    assert watch.due_at == 1.0 + EMPTY_TARGET_AGAIN_S
    assert take(watch, description(target=NO_PARTITIONS), now=1.5) is True
    assert take(watch, description(target=NO_PARTITIONS), now=1.0 + EMPTY_TARGET_DOUBT_S) is False
    assert watch.settled(5)


def test_description_that_arrives_late_is_as_old_as_its_request() -> None:
    watch = TargetAssignment()
    watch.asked(0.9)
    assert take(watch, description(target=NO_PARTITIONS), now=1.0) is True
    watch.asked(1.5)
    late = 1.0 + 2 * EMPTY_TARGET_DOUBT_S
    assert take(watch, description(target=NO_PARTITIONS), now=late) is True
    watch.asked(late + EMPTY_TARGET_AGAIN_S)
    assert take(watch, description(target=NO_PARTITIONS), now=late + 1.0) is False


def test_a_share_restarts_the_doubt() -> None:
    watch = TargetAssignment()
    take(watch, description(target=NO_PARTITIONS), now=1.0)
    assert take(watch, description(target=parts(0)), owned=parts(0), now=1.5) is False
    assert take(watch, description(target=NO_PARTITIONS), now=9.0) is True


def test_pending_is_the_target_without_the_owned_partitions() -> None:
    watch = TargetAssignment()
    assert take(watch, description(target=parts(0, 1)), owned=parts(0)) is True
    assert watch.pending == parts(1)
    assert not watch.settled(5)
    assert watch.due_at == 1.0 + DESCRIBE_AGAIN_S
    assert (watch.group_epoch, watch.assignment_epoch) == (5, 5)
    assert watch.group_state == "Reconciling"


@pytest.mark.parametrize(("group_epoch", "assignment_epoch"), [(6, 5), (6, 6)])
def test_epoch_that_is_behind_means_more_is_to_come(
    group_epoch: int, assignment_epoch: int
) -> None:
    watch = TargetAssignment()
    answer = description(
        target=parts(0), group_epoch=group_epoch, assignment_epoch=assignment_epoch
    )
    assert take(watch, answer, owned=parts(0)) is True
    assert not watch.settled(5)


def test_settled_until_the_next_change() -> None:
    watch = TargetAssignment()
    assert take(watch, description(target=parts(0)), owned=parts(0)) is False
    assert watch.settled(5)
    assert not watch.settled(6)
    assert watch.due_at is None
    watch.changed(2.0)
    assert not watch.settled(5)


@pytest.mark.parametrize("member_epoch", [4, 6])
def test_answer_from_another_epoch_settles_nothing(member_epoch: int) -> None:
    """A description may be older than the heartbeat whose answer overtook it."""
    watch = TargetAssignment()
    answer = description(
        target=parts(0), group_epoch=4, assignment_epoch=4, member_epoch=member_epoch
    )
    assert take(watch, answer, owned=parts(0)) is True
    assert not watch.settled(5)


@pytest.mark.parametrize(
    "answer",
    [
        DescribeGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        DescribeGroupResponse(group_epoch=7, members=()),
    ],
)
def test_answer_without_the_member_tells_nothing_and_is_asked_again(
    answer: DescribeGroupResponse,
) -> None:
    watch = TargetAssignment()
    take(watch, description(target=parts(0, 1)), owned=parts(0))
    watch.asked(3.0)
    assert take(watch, answer, now=3.5) is None
    assert watch.pending == parts(1)
    assert watch.due_at == 3.5 + DESCRIBE_AGAIN_S


def test_question_that_failed_does_not_put_off_a_change_that_came_meanwhile() -> None:
    watch = TargetAssignment()
    watch.asked(1.0)
    watch.changed(1.1)
    watch.unanswered(2.0)
    assert watch.due_at == pytest.approx(1.25)


NAMES = {TOPIC: "orders"}
MEMBER = {"group_id": "g", "member_id": "m1", "member_epoch": 2}


def answered(
    watch: PendingOffsets, offsets: dict[int, int], log_ends: dict[int, int], now: float = 1.0
) -> list[RangesWithheld]:
    """Answer both requests; return the events."""
    assert watch.to_fetch(**MEMBER) is not None
    asked = watch.to_list(parts(*log_ends), is_alone=True)
    assert asked == set(ends(log_ends))
    fetched = {key(at): m.OffsetAndMetadata(offset) for at, offset in offsets.items()}
    assert watch.handle_fetch(fetch_answer(offsets=fetched), now) == []
    return watch.handle_ends(asked, ends(log_ends), now)


def is_quiet(watch: PendingOffsets, pending: Assignment) -> bool:
    """Whether nothing is asked, as long as no other ends are listed."""
    return watch.to_fetch(**MEMBER) is None and not watch.to_list(pending, is_alone=True)


def test_withheld_ranges_are_reported_once_for_each_change() -> None:
    watch = PendingOffsets()
    watch.refresh(parts(2, 3), NAMES, 1.0)
    (event,) = answered(watch, {2: -1, 3: 120}, {2: 7, 3: 400})
    assert event.withheld == (
        WithheldRange("orders", 2, None, 7),
        WithheldRange("orders", 3, 120, 400),
    )
    text = event.text(lambda _: None)
    assert text.startswith("waiting for orders-2: [?, 7), orders-3: [120, 400), not released")
    watch.batch_planned()
    fetched = {key(2): m.OffsetAndMetadata(-1), key(3): m.OffsetAndMetadata(130)}
    assert watch.to_fetch(**MEMBER) is not None
    assert watch.handle_fetch(fetch_answer(offsets=fetched), 2.0) == []
    asked = watch.to_list(parts(2, 3), is_alone=False)
    assert watch.handle_ends(asked, ends({2: 7, 3: 500}), 2.0) == [], "the offsets only advanced"
    assert watch.withheld(parts(3)) == (WithheldRange("orders", 3, 130, 500),)
    watch.refresh(parts(3), NAMES, 9.0)
    assert len(answered(watch, {3: 130}, {3: 500})) == 1


def test_nothing_is_asked_alone_where_nothing_changed() -> None:
    watch = PendingOffsets()
    watch.refresh(parts(3), NAMES, 1.0)
    answered(watch, {3: 1}, {3: 2})
    for described_at in (6.0, 11.0, 600.0):
        watch.refresh(parts(3), NAMES, described_at)
        assert is_quiet(watch, parts(3))
    assert watch.to_list(parts(3), is_alone=False) == {key(3)}, "it rides on another request"
    watch.batch_planned()
    assert watch.to_fetch(**MEMBER) is not None
    watch.refresh(parts(), NAMES, 700.0)
    watch.batch_planned()
    assert is_quiet(watch, parts(3))
    assert watch.withheld(parts(3)) == ()


def test_available_now_looks_again_every_few_seconds() -> None:
    watch = PendingOffsets()
    watch.look_again(1.0)
    watch.refresh(parts(3), NAMES, 1.0)
    answered(watch, {3: 1}, {3: 2})
    watch.look_again(0.9 + RESOLVE_AGAIN_S)
    assert is_quiet(watch, parts(3))
    watch.look_again(1.0 + RESOLVE_AGAIN_S)
    assert answered(watch, {3: 2}, {3: 2}) == []
    assert watch.withheld(parts(3)) == (WithheldRange("orders", 3, 2, 2),)


def test_so_many_are_resolved_and_the_rest_is_counted() -> None:
    watch = PendingOffsets()
    pending = parts(*range(MAX_RESOLVED + 7))
    watch.refresh(pending, NAMES, 1.0)
    request = watch.to_fetch(**MEMBER)
    assert request is not None
    assert len(request.partitions) == MAX_RESOLVED
    assert watch.handle_fetch(m.OffsetFetchResponse(), 1.0) == []
    asked = watch.to_list(pending, is_alone=True)
    assert len(asked) == MAX_RESOLVED
    (event,) = watch.handle_ends(asked, {}, 1.0)
    assert (len(event.withheld), event.unresolved) == (MAX_RESOLVED, 7)
    assert f"and {MAX_RESOLVED + 7 - 8} more" in event.text(lambda _: None)


def test_failed_fetch_waits_for_a_description_and_a_failed_listing_for_a_change() -> None:
    watch = PendingOffsets()
    watch.refresh(parts(3), NAMES, 1.0)
    assert watch.to_fetch(**MEMBER) is not None
    watch.unanswered()
    asked = watch.to_list(parts(3), is_alone=True)
    watch.handle_ends(asked, {}, 1.1)
    assert is_quiet(watch, parts(3))
    assert not watch.to_list(parts(3), is_alone=False), "its leader may be down"
    assert watch.withheld(parts(3)) == (WithheldRange("orders", 3, None, None),)
    watch.refresh(parts(3), NAMES, 6.0)
    assert watch.to_fetch(**MEMBER) is not None
    assert not watch.to_list(parts(3), is_alone=False), "each plan would wait for its leader"
    watch.refresh(parts(3, 4), NAMES, 7.0)
    assert watch.to_list(parts(3, 4), is_alone=True) == {key(3), key(4)}


def waiting() -> ClientHarness:
    """A member that owns partition 0 and is to get 3."""
    harness = ClientHarness()
    harness.describes = False
    harness.own(0, offsets={0: 5})
    harness.answer(Channel.OFFSETS, described("m1", 2, parts(0, 3), current=parts(0)))
    return harness


def answer_pending(harness: ClientHarness, offset: int) -> None:
    """Answer the request for the committed offset of partition 3."""
    request = harness.request(Channel.OFFSETS)
    assert isinstance(request, m.OffsetFetchRequest)
    assert (request.partitions, request.member_epoch) == ({key(3)}, 2)
    harness.answer(Channel.OFFSETS, committed({3: offset}))


def test_pending_partition_shows_what_waits_in_it_and_is_fetched_afresh_once_assigned() -> None:
    harness = waiting()
    answer_pending(harness, 120)
    assert key(3) not in harness.client.parts.next_batch.readable(harness.now)
    assert harness.ends_asked() == {key(0), key(3)}, "one request for both"
    plan = harness.client.plan(PlanLimit(), ends({0: 9, 3: 400}), harness.now)
    assert plan is not None
    assert plan.partitions() == {key(0)}
    harness.pump()
    (event,) = harness.find(RangesWithheld)
    assert isinstance(event, RangesWithheld)
    shown = WithheldRange("orders", 3, 120, 400)
    assert take_snapshot(harness.client, harness.now).pending_ranges == (shown,)
    answer_pending(harness, 133)
    shown = replace(shown, committed_offset=133)
    assert take_snapshot(harness.client, harness.now).pending_ranges == (shown,), "with the batch"
    harness.beat(accepted(2, parts(0, 3)))
    assert take_snapshot(harness.client, harness.now).pending_ranges == ()
    request = harness.until(m.OffsetFetchRequest)
    assert isinstance(request, m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 5, 3: 133}))
    assert harness.client.parts.ledger.owned[key(3)].position == 133


def test_from_the_assignment_to_the_plan_it_takes_one_round_trip() -> None:
    """The committed offset and the end are asked for at the same time; no leader is validated."""
    harness = waiting()
    answer_pending(harness, 120)
    client = harness.client
    harness.beat(accepted(2, parts(0, 3)))
    assert isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest)
    assert key(3) not in client.parts.next_batch.readable(harness.now)
    assert harness.ends_asked() == {key(0), key(3)}
    fetched = committed({0: 5, 3: 133})
    offsets = {each: replace(at, leader_epoch=4) for each, at in fetched.answers.items()}
    harness.answer(Channel.OFFSETS, fetch_answer(offsets=offsets))
    assert not client.parts.positions.is_resolving(since=0.0)
    listed, leader_epochs = ends({0: 5, 3: 400}), {key(0): 4, key(3): 4}
    assert not client.parts.validator.compare(listed, leader_epochs), (
        "the leader's epoch is the committed one"
    )
    plan = client.plan(PlanLimit(), listed, harness.now, leader_epochs)
    assert plan is not None
    assert [(each.key, each.from_offset, each.until_offset) for each in plan.ranges] == [
        (key(3), 133, 400)
    ]
    harness.pump()
    assert not isinstance(harness.request(Channel.CLUSTER), m.OffsetForLeaderEpochRequest)


def test_end_that_was_listed_before_the_assignment_is_not_planned() -> None:
    harness = waiting()
    answer_pending(harness, 120)
    client = harness.client
    assert harness.ends_asked() == {key(0), key(3)}
    harness.beat(accepted(2, parts(0, 3)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 5, 3: 133}))
    assert client.parts.next_batch.readable(harness.now).keys() == {key(0), key(3)}
    plan = client.plan(PlanLimit(), ends({0: 9, 3: 400}), harness.now)
    assert plan is not None
    assert plan.partitions() == {key(0)}


def test_names_of_pending_topics_are_known_before_the_assignment() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0, offsets={0: 5})
    other = TopicIdPartition(uuid.UUID(int=9), 0)
    target = Assignment(frozenset({key(0), other}))
    harness.answer(Channel.OFFSETS, described("m1", 2, target, current=parts(0)))
    request = harness.request(Channel.CLUSTER)
    assert request == m.MetadataRequest(topic_ids=frozenset({other.topic_id}))
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    assert harness.request(Channel.CLUSTER) != request, "it is asked for once"


def test_commits_go_before_questions_about_pending_partitions() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0, offsets={0: 5})
    plan = harness.client.plan(PlanLimit(), ends({0: 9}), harness.now)
    assert plan is not None
    harness.client.finish(plan, harness.now)
    harness.answer(Channel.OFFSETS, described("m1", 2, parts(0, 3), current=parts(0)))
    assert isinstance(harness.request(Channel.OFFSETS), m.OffsetCommitRequest)


@pytest.mark.parametrize("fails", [True, False])
def test_error_about_a_pending_partition_changes_nothing(fails: bool) -> None:
    harness = waiting()
    before = harness.client.parts.member.state
    if fails:
        harness.fail(Channel.OFFSETS)
    else:
        refusal = m.OffsetFetchResponse(error_code=ErrorCode.STALE_MEMBER_EPOCH)
        harness.answer(Channel.OFFSETS, refusal)
    assert harness.client.parts.member.state is before
    assert not isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest)


def test_topic_that_only_the_description_names_is_shown_by_name() -> None:
    other = uuid.UUID(int=9)
    watch = PendingOffsets()
    pending = Assignment(frozenset({TopicIdPartition(other, 0)}))
    watch.refresh(pending, {other: "bills"}, 1.0)
    assert watch.withheld(pending) == (WithheldRange("bills", 0, None, None),)
