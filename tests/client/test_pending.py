"""What waits in partitions that are not released yet: asked last, shown, never planned from."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.client import Lane
from spark_groups.client.pending import MAX_RESOLVED, RESOLVE_AGAIN_S, PendingWatch
from spark_groups.client.snapshot import take_snapshot
from spark_groups.errors import ErrorCode
from spark_groups.offsets.events import RangesWithheld, WithheldRange
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from spark_groups.types import Assignment, TopicIdPartition
from tests.client.hands import TOPIC, Hands, accepted, committed, described, ends, key, parts

NAMES = {TOPIC: "orders"}
MEMBER = {"group_id": "g", "member_id": "m1", "member_epoch": 2}


def answered(
    watch: PendingWatch, offsets: dict[int, int], log_ends: dict[int, int], now: float = 1.0
) -> list[RangesWithheld]:
    """Answer both questions; what is said then."""
    assert watch.to_fetch(**MEMBER) is not None
    assert watch.to_list() is not None
    fetched = {key(at): m.OffsetAndMetadata(offset) for at, offset in offsets.items()}
    assert watch.handle_fetch(m.OffsetFetchResponse(offsets=fetched), now) == []
    return watch.handle_list(m.ListOffsetsResponse(offsets=ends(log_ends)), now)


def test_ranges_are_said_once_for_each_change() -> None:
    watch = PendingWatch()
    watch.refresh(parts(2, 3), NAMES, 1.0)
    (event,) = answered(watch, {2: -1, 3: 120}, {2: 7, 3: 400})
    assert event.withheld == (
        WithheldRange("orders", 2, None, 7),
        WithheldRange("orders", 3, 120, 400),
    )
    text = event.text(lambda _: None)
    assert text.startswith("waits for orders-2: [?, 7), orders-3: [120, 400), withheld")
    watch.refresh(parts(2, 3), NAMES, 1.0 + RESOLVE_AGAIN_S)
    assert answered(watch, {2: -1, 3: 130}, {2: 7, 3: 500}) == [], "it only went on"
    assert watch.withheld(parts(3)) == (WithheldRange("orders", 3, 130, 500),)
    watch.refresh(parts(3), NAMES, 9.0)
    assert len(answered(watch, {3: 130}, {3: 500})) == 1


def test_nothing_is_asked_more_often_than_it_changes() -> None:
    watch = PendingWatch()
    watch.refresh(parts(3), NAMES, 1.0)
    answered(watch, {3: 1}, {3: 2})
    watch.refresh(parts(3), NAMES, 0.9 + RESOLVE_AGAIN_S)
    assert (watch.to_fetch(**MEMBER), watch.to_list()) == (None, None)
    watch.refresh(parts(), NAMES, 20.0)
    assert (watch.to_fetch(**MEMBER), watch.to_list()) == (None, None)
    assert watch.withheld(parts(3)) == ()


def test_so_many_are_resolved_and_the_rest_is_counted() -> None:
    watch = PendingWatch()
    watch.refresh(parts(*range(MAX_RESOLVED + 7)), NAMES, 1.0)
    request = watch.to_fetch(**MEMBER)
    assert request is not None
    assert len(request.partitions) == MAX_RESOLVED
    assert watch.handle_fetch(m.OffsetFetchResponse(), 1.0) == []
    assert watch.to_list() is not None
    (event,) = watch.handle_list(m.ListOffsetsResponse(), 1.0)
    assert (len(event.withheld), event.unresolved) == (MAX_RESOLVED, 7)
    assert f"and {MAX_RESOLVED + 7 - 8} more" in event.text(lambda _: None)


def test_question_that_failed_is_left_to_the_next_description() -> None:
    watch = PendingWatch()
    watch.refresh(parts(3), NAMES, 1.0)
    request = watch.to_fetch(**MEMBER)
    assert request is not None
    assert watch.asked_for(request)
    watch.unanswered(request)
    assert not watch.asked_for(request)
    assert watch.to_fetch(**MEMBER) is None
    assert watch.withheld(parts(3)) == (WithheldRange("orders", 3, None, None),)
    watch.refresh(parts(3), NAMES, 1.0 + RESOLVE_AGAIN_S)
    assert watch.to_fetch(**MEMBER) is not None


def waiting() -> Hands:
    """A member that owns partition 0 and is to get 3."""
    hands = Hands()
    hands.describes = False
    hands.own(0, offsets={0: 5})
    hands.answer(Lane.OFFSETS, described("m1", 2, parts(0, 3), current=parts(0)))
    return hands


def answer_pending(hands: Hands, offset: int, end: int) -> None:
    """Answer what is asked about partition 3."""
    request = hands.request(Lane.OFFSETS)
    assert isinstance(request, m.OffsetFetchRequest)
    assert (request.partitions, request.member_epoch) == ({key(3)}, 2)
    hands.answer(Lane.OFFSETS, committed({3: offset}))
    while not isinstance(hands.request(Lane.CLUSTER), m.ListOffsetsRequest):
        settings = m.GroupSettingsResponse(session_timeout_ms=45_000)
        hands.answer(Lane.CLUSTER, settings)
    hands.answer(Lane.CLUSTER, m.ListOffsetsResponse(offsets=ends({3: end})))


def test_pending_partition_shows_what_waits_in_it_and_is_fetched_afresh_once_assigned() -> None:
    hands = waiting()
    answer_pending(hands, 120, 400)
    (event,) = hands.find(RangesWithheld)
    assert isinstance(event, RangesWithheld)
    shown = {"topic": "orders", "partition": 3, "committed_offset": 120, "log_end_offset": 400}
    assert take_snapshot(hands.client, hands.now)["pending_ranges"] == [shown]
    assert key(3) not in hands.client.readable(hands.now)
    plan = hands.client.plan(PlanLimit(), ends({0: 9, 3: 400}), hands.now)
    assert plan is not None
    assert plan.partitions() == {key(0)}
    hands.beat(accepted(2, parts(0, 3)))
    assert take_snapshot(hands.client, hands.now)["pending_ranges"] == []
    request = hands.until(m.OffsetFetchRequest)
    assert isinstance(request, m.OffsetFetchRequest)
    hands.answer(Lane.OFFSETS, committed({0: 5, 3: 133}))
    assert hands.client.ledger.owned[key(3)].position == 133


def test_commits_go_before_questions_about_pending_partitions() -> None:
    hands = Hands()
    hands.describes = False
    hands.own(0, offsets={0: 5})
    plan = hands.client.plan(PlanLimit(), ends({0: 9}), hands.now)
    assert plan is not None
    hands.client.finish(plan, hands.now)
    hands.answer(Lane.OFFSETS, described("m1", 2, parts(0, 3), current=parts(0)))
    assert isinstance(hands.request(Lane.OFFSETS), m.OffsetCommitRequest)


@pytest.mark.parametrize("fails", [True, False])
def test_error_about_a_pending_partition_changes_nothing(fails: bool) -> None:
    hands = waiting()
    before = hands.client.member.state
    if fails:
        hands.fail(Lane.OFFSETS)
    else:
        refusal = m.OffsetFetchResponse(error_code=ErrorCode.STALE_MEMBER_EPOCH)
        hands.answer(Lane.OFFSETS, refusal)
    assert hands.client.member.state is before
    assert hands.client.parts.fetch_after_heartbeat is None
    assert not isinstance(hands.request(Lane.OFFSETS), m.OffsetFetchRequest)


def test_topic_that_only_the_description_names_is_shown_by_name() -> None:
    other = uuid.UUID(int=9)
    watch = PendingWatch()
    pending = Assignment(frozenset({TopicIdPartition(other, 0)}))
    watch.refresh(pending, {other: "bills"}, 1.0)
    assert watch.withheld(pending) == (WithheldRange("bills", 0, None, None),)
