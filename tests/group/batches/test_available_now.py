"""How AvailableNow ends: missing partitions, how long it waits for them, and what then."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from spark_groups.errors import AvailableNowError
from spark_groups.group.batches.available_now import AvailableNowEnd
from spark_groups.group.batches.available_now_wait import AvailableNowWait, WhenUnsettled
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import AvailableNowUnsettled
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import Severity
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.metadata import BELIEVED_S
from spark_groups.types import Assignment
from tests.group.harness import TOPIC, ClientHarness, committed, described, ends, key, parts


def waiting(
    wait: AvailableNowWait, committed_offset: int = 0
) -> tuple[ClientHarness, AvailableNowEnd]:
    """A member that has partition 0 and is meant to have 1, which a silent member holds."""
    harness = ClientHarness()
    harness.client.parts.available_now.prepare()
    harness.describes = False
    harness.own(0)
    harness.until(m.DescribeGroupRequest)
    mine = described("m1", 2, parts(0, 1), parts(0))
    other = m.DescribedMember(
        member_id="gone",
        member_epoch=1,
        client_id="c",
        client_host="/10.0.0.9",
        assignment=parts(1),
    )
    names = {TOPIC: "orders"}
    response = replace(mine, members=(*mine.members, other), topic_names=names)
    harness.answer(Channel.OFFSETS, response)
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({1: committed_offset}))
    assert key(1) in harness.ends_asked()
    harness.client.plan(PlanLimit(), ends({1: 200}), harness.now)
    harness.client.poll_events()
    return harness, end_of(harness, wait)


def end_of(harness: ClientHarness, wait: AvailableNowWait) -> AvailableNowEnd:
    return AvailableNowEnd(wait, harness.client.parts.next_batch, harness.client.parts.absent)


def over(harness: ClientHarness, end: AvailableNowEnd, waited_s: float) -> bool:
    return end.is_over(waited_s, harness.now)


def test_end_says_which_partitions_with_how_many_rows_who_holds() -> None:
    harness, end = waiting(AvailableNowWait(10.0))
    assert not over(harness, end, 9.9)
    assert over(harness, end, 10.0)
    (event,) = harness.client.poll_events()
    severity, text = event.severity, event.text(lambda _: "orders")
    assert severity is Severity.WARNING
    assert "orders-1: [0, 200) are not released by gone (client c, host 10.0.0.9)" in text
    assert "200 rows" in text


def test_fail_raises_what_warn_says() -> None:
    harness, end = waiting(AvailableNowWait(10.0, WhenUnsettled.FAIL))
    with pytest.raises(AvailableNowError, match="not released by gone") as caught:
        over(harness, end, 10.0)
    assert "availableNowUnsettled=wait" in str(caught.value)


def test_wait_lasts_for_the_session_and_then_fails() -> None:
    harness, end = waiting(AvailableNowWait(10.0, WhenUnsettled.WAIT))
    harness.client.parts.session.session_timeout_ms = 45_000
    assert not over(harness, end, 54.9)
    with pytest.raises(AvailableNowError, match="not released by gone") as caught:
        over(harness, end, 55.0)
    assert "availableNowUnsettled=wait" not in str(caught.value), "it has been tried"


@pytest.mark.parametrize("when", WhenUnsettled)
def test_partitions_without_rows_are_no_loss(when: WhenUnsettled) -> None:
    harness, end = waiting(AvailableNowWait(10.0, when), committed_offset=200)
    assert over(harness, end, 10.0)
    (event,) = harness.client.poll_events()
    assert isinstance(event, AvailableNowUnsettled)
    assert event.severity is Severity.INFO


BILLS = m.TopicMetadata(uuid.UUID(int=2), "bills", 1)


@pytest.mark.parametrize("is_in_target", [True, False])
def test_topic_that_was_found_late_is_waited_for_until_the_group_has_planned_it(
    is_in_target: bool,
) -> None:
    harness = ClientHarness()
    harness.client.parts.available_now.prepare()
    request = m.MetadataRequest(topic_names=frozenset({"bills"}))
    absent = harness.client.parts.absent
    absent.learn(request, m.MetadataResponse(), 0.0)
    absent.learn(request, m.MetadataResponse(topics=(BILLS,)), 0.5)
    harness.describes = False
    harness.own(0)
    harness.until(m.DescribeGroupRequest)
    # All that this member is meant to have it has; another one gets the topic.
    mine = described("m1", 2, parts(0))
    other = m.DescribedMember(
        member_id="m2",
        member_epoch=2,
        target_assignment=Assignment.of({BILLS.topic_id: (0,)}),
    )
    members = (*mine.members, other) if is_in_target else mine.members
    names = {TOPIC: "orders", BILLS.topic_id: "bills"}
    harness.answer(Channel.OFFSETS, replace(mine, members=members, topic_names=names))
    assert harness.client.parts.next_batch.is_settled
    assert harness.client.parts.available_now.is_in_doubt != is_in_target
    absent.learn(request, m.MetadataResponse(topics=(BILLS,)), 0.5 + BELIEVED_S)
    assert not harness.client.parts.available_now.is_in_doubt


def test_unknown_target_assignment_is_reported() -> None:
    harness = ClientHarness()
    harness.client.parts.available_now.prepare()
    end = end_of(harness, AvailableNowWait(10.0))
    harness.client.poll_events()
    assert end.is_over(10.0, harness.now)
    (event,) = harness.client.poll_events()
    assert "the target assignment of this member is unknown" in event.text(lambda _: None)


def test_unknown_start_is_named() -> None:
    event = AvailableNowUnsettled(
        1.0,
        waited_s=10.0,
        withheld=(),
        unresolved=0,
        holders=(),
        unready=(key(3),),
        is_target_known=True,
    )
    severity, text = event.severity, event.text(lambda _: "orders")
    assert severity is Severity.WARNING
    assert "no position is known for orders-3" in text
