"""The threads of a driver: what happens when they end, or die."""

from __future__ import annotations

import logging
import time
import uuid

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, DeadOwnershipError
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member.events import Event, MemberLeft, QueryReturned
from spark_groups.group.member.member import MemberConfig
from spark_groups.group.member.messages import Node
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.trigger import Step, Trigger
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.runtime.driver import leave_at_once
from spark_groups.runtime.engine import TIMELINE_LENGTH, Engine, Timeline, suspension_clock
from spark_groups.wire.security.security import Security
from tests.runtime.members import QueryLike, instance_epochs, queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S

UNREACHABLE = ("localhost:1",)


def running() -> Engine:
    """An engine whose brokers are not there."""
    engine = Engine("g")
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders")),
        starting_offsets=StartingOffsets(StartingPoint.LATEST),
    )
    threads = ChannelThreads(
        UNREACHABLE,
        client_id="test",
        security=Security(),
        answered=engine.answered,
        crashed=engine.crashed,
    )
    engine.run(GroupClient(ClientParts(config, new_member_id=lambda: str(uuid.uuid4()))), threads)
    return engine


def test_engine_that_was_not_started_refuses_calls() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        Engine("g").started()
    assert not Engine("g").wait_for(lambda: False, 0.01)


def test_answers_and_the_clock_move_the_client() -> None:
    engine = running()
    try:
        failing = engine.wait_for(
            lambda: engine.started().parts.search.failing_since is not None, timeout_s=LONG_S
        )
        assert failing
        assert any("no response to" in line for line in engine.timeline.lines())
    finally:
        engine.close()
        engine.close()


def test_death_of_a_thread_is_noted_and_wakes_all_waiters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = running()
    try:
        monkeypatch.setattr(engine, "pump", lambda: 1 / 0)
        assert engine.wait_for(lambda: engine.crash is not None, timeout_s=LONG_S)
        assert isinstance(engine.crash, ZeroDivisionError)
    finally:
        engine.close()


def test_event_is_logged_kept_and_shown_to_all_observers(caplog: pytest.LogCaptureFixture) -> None:
    timeline, seen = Timeline("g"), list[Event]()
    timeline.observers += [lambda event, _: seen.append(event)] * 2
    event = QueryReturned(1.0, "m1", 3)
    with caplog.at_level(logging.INFO, "spark_groups"):
        timeline.add(event, lambda _: None)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "group g: member m1 at epoch 3: rejoining the group" in caplog.text
    assert seen == [event, event]
    assert len(timeline.lines()) == 1


def test_only_the_last_ones_are_kept() -> None:
    timeline = Timeline("g")
    for epoch in range(TIMELINE_LENGTH + 5):
        timeline.add(MemberLeft(1.0, "m1", epoch), lambda _: None)
    lines = timeline.lines()
    assert len(lines) == TIMELINE_LENGTH
    assert f"epoch {TIMELINE_LENGTH + 4}: " in lines[-1]


CONFIG = MemberConfig(group_id="g", subscription=Subscription.of_names("orders"))


@pytest.mark.broker
@pytest.mark.parametrize(("instance_id", "left"), [(None, {}), ("i1", {"i1": -2})])
def test_member_whose_thread_died_is_not_waited_for(
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    instance_id: str | None,
    left: dict[str, int],
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"instance_id": instance_id})
        query.plan()
        query.driver._engine.crashed(RuntimeError("a bug"))
        with pytest.raises(DeadOwnershipError, match="a bug"):
            query.plan()
        query.driver.leave(LONG_S, will_return=True)
        assert instance_epochs(kafka.bootstrap_servers, group_id) == left


def test_broker_that_is_gone_is_no_error() -> None:
    took = leave_at_once(
        CONFIG,
        "m1",
        Node(1, "localhost", 1),
        will_return=False,
        client_id="test",
        security=Security(),
        timeout_s=2.0,
    )
    assert not took


def test_it_never_goes_back_and_counts_seconds() -> None:
    began_at, began_monotonic_s = suspension_clock(), time.monotonic()
    assert suspension_clock() >= began_at
    passed_s = time.monotonic() - began_monotonic_s
    assert suspension_clock() - began_at >= passed_s


def test_threads_that_wait_do_not_wake_each_other_for_nothing(
    group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls, poll = [0], Trigger.poll

    def counted(self: Trigger, now: float) -> Step:
        polls[0] += 1
        return poll(self, now)

    monkeypatch.setattr(Trigger, "poll", counted)
    query = QueryLike(UNREACHABLE[0], group_id, "anything", driver={"api_timeout_s": 2.0})
    try:
        with pytest.raises(BrokerUnreachableError):
            query.plan()
    finally:
        query.driver.leave(0.0)
    # Each attempt and its failure are inputs, and the timer looks once in each second.
    assert 1 < polls[0] < 100
