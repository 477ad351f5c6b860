"""The requests of a trigger: their partitions, and the effect of missing answers."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode, GroupError
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import LogEndsMissing, RecordsNotSampled, RequestUnanswered
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from spark_groups.group.snapshot import take_snapshot
from spark_groups.types import LATEST_TIMESTAMP
from tests.answers import list_answer
from tests.group.harness import ClientHarness, key


def owner() -> ClientHarness:
    harness = ClientHarness()
    harness.own(0, 1, offsets={0: 0, 1: 0})
    return harness


def asked(harness: ClientHarness) -> m.Request | None:
    assert harness.client.parts.next_batch.ask_for_ends(harness.now)
    harness.pump()
    return harness.request(Channel.TRIGGER)


def test_ends_of_all_owned_partitions_are_listed_in_one_request() -> None:
    harness = owner()
    keys = frozenset({key(0), key(1)})
    assert asked(harness) == m.ListOffsetsRequest(
        partitions=keys, timestamp_ms=LATEST_TIMESTAMP, read_committed=False
    )
    ends = harness.client.parts.log_ends
    assert not ends.is_listed
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5}, leader_epochs={key(0): 2}))
    assert ends.is_listed
    assert ends.found == {key(0): (5, 2)}
    assert harness.request(Channel.TRIGGER) is None, "once for each trigger"


def test_nothing_is_asked_for_no_partition() -> None:
    harness = ClientHarness()
    assert not harness.client.parts.next_batch.ask_for_ends(harness.now)
    assert harness.client.parts.log_ends.is_listed


def test_problem_is_reported_once_for_each_reason() -> None:
    harness = owner()
    ends = harness.client.parts.log_ends
    moved = {key(1): ErrorCode.LEADER_NOT_AVAILABLE.value}
    for _ in range(2):
        asked(harness)
        harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5}, errors=moved))
        assert ends.found == {key(0): (5, -1)}
        assert ends.problem == "1 partitions: LEADER_NOT_AVAILABLE"
    assert len(harness.find(LogEndsMissing)) == 1
    asked(harness)
    harness.fail(Channel.TRIGGER)
    assert (ends.is_listed, ends.found, ends.problem) == (True, {}, "no answer")
    asked(harness)
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 6, key(1): 1}))
    assert not ends.problem


def test_broker_that_refuses_for_good_ends_the_query() -> None:
    harness = owner()
    asked(harness)
    refused = {key(0): ErrorCode.TOPIC_AUTHORIZATION_FAILED.value}
    harness.answer(Channel.TRIGGER, list_answer(errors=refused))
    with pytest.raises(GroupError, match=r"TOPIC_AUTHORIZATION_FAILED.*DESCRIBE"):
        harness.client.check()


def test_error_of_a_partition_that_is_only_shown_is_ignored() -> None:
    harness = owner()
    asked(harness)
    harness.client.parts.log_ends._shown = frozenset({key(1)})
    refused = {key(1): ErrorCode.TOPIC_AUTHORIZATION_FAILED.value}
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5}, errors=refused))
    harness.client.check()
    assert not harness.client.parts.log_ends.problem


def test_answer_for_an_earlier_trigger_is_ignored() -> None:
    harness = owner()
    ends = harness.client.parts.log_ends
    asked(harness)
    assert harness.client.parts.next_batch.ask_for_ends(harness.now), "the next trigger asks again"
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5}))
    assert ends.found == {}
    assert not ends.is_listed
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 7}))
    assert ends.found == {key(0): (7, -1)}


def test_member_that_may_not_plan_uses_no_ends_of_an_earlier_trigger() -> None:
    harness = owner()
    client = harness.client
    asked(harness)
    harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5, key(1): 5}))
    assert client.plan(PlanLimit(), {key(0): 5}, harness.now) is not None
    assert not client.parts.next_batch.ask_for_ends(harness.now), "a batch runs"
    assert client.parts.log_ends.found == {}


def test_samples_that_fail_are_reported_once_and_the_trigger_continues() -> None:
    harness = owner()
    samples = harness.client.parts.samples
    for _ in range(2):
        samples.ask({key(0): 3}, 1.5, harness.now)
        harness.pump()
        request = harness.request(Channel.TRIGGER)
        assert request == m.SampleRecordsRequest(
            offsets={key(0): 3}, read_committed=False, timeout_s=1.5
        )
        harness.fail(Channel.TRIGGER)
        assert samples.is_sampled
        assert samples.found == {}
    (event,) = harness.find(RecordsNotSampled)
    assert "1 partitions could not be sampled" in event.text(lambda _: "orders")
    samples.ask({key(0): 3}, 0.0, harness.now)
    assert samples.is_sampled, "no time is left"


def test_samples_without_time_left_take_the_place_of_those_that_are_awaited() -> None:
    harness = owner()
    samples = harness.client.parts.samples
    samples.ask({key(0): 3}, 1.5, harness.now)
    harness.pump()
    assert not samples.is_sampled
    samples.ask({key(0): 3}, 0.0, harness.now)
    assert samples.is_sampled
    late = {key(0): m.RecordSample(size_bytes=10, offsets=1, skipped_offsets=0)}
    harness.answer(Channel.TRIGGER, m.SampleRecordsResponse(samples=late))
    assert samples.found == {}


def test_leader_without_an_answer_says_nothing_about_the_group() -> None:
    harness = owner()
    asked(harness)
    harness.fail(Channel.TRIGGER)
    parts = harness.client.parts
    assert parts.search.failing_since is None
    assert not harness.find(RequestUnanswered)
    assert len(harness.find(LogEndsMissing)) == 1
    asked(harness)
    harness.fail(Channel.TRIGGER)
    assert len(harness.find(LogEndsMissing)) == 1, "once for each reason"


def test_log_ends_that_stay_missing_are_shown_as_awaited() -> None:
    harness = owner()
    moved = {key(1): ErrorCode.LEADER_NOT_AVAILABLE.value}
    for _ in range(3):
        asked(harness)
        harness.answer(Channel.TRIGGER, list_answer(offsets={key(0): 5}, errors=moved))
        harness.wait(1.0)
    (awaited,) = [
        each
        for each in take_snapshot(harness.client, harness.now).awaited_answers
        if "for a plan" in each.request
    ]
    assert awaited.reason == "1 partitions: LEADER_NOT_AVAILABLE"
    assert awaited.age_s >= 2.0
