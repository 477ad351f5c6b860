"""The threads of a driver: what happens when they end, or die."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.client import ClientConfig, GroupClient
from spark_groups.offsets.starting import StartingOffsets, StartingPoint
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.subscription import Subscription
from spark_groups.runtime.carriers import Carriers
from spark_groups.runtime.engine import Engine
from spark_groups.wire.security.security import Security

NOBODY = ("localhost:1",)


def running() -> Engine:
    """An engine whose brokers are not there."""
    engine = Engine("g")
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders")),
        starting_offsets=StartingOffsets(StartingPoint.LATEST),
    )
    carriers = Carriers(
        NOBODY,
        client_id="test",
        security=Security(),
        answered=engine._answered,
        crashed=engine._crashed,
    )
    engine._run(GroupClient(config, new_member_id=lambda: str(uuid.uuid4())), carriers)
    return engine


def test_engine_that_was_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="started first"):
        Engine("g")._started()
    assert not Engine("g")._wait_for(lambda: False, 0.01)


def test_answers_and_the_clock_move_the_client() -> None:
    engine = running()
    try:
        failing = engine._wait_for(
            lambda: engine._started().failing_since is not None, timeout_s=30.0
        )
        assert failing
        assert any("got no answer" in line for line in engine._timeline.lines())
    finally:
        engine._close()
        engine._close()


def test_death_of_a_thread_is_noted_and_wakes_whoever_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = running()
    try:
        monkeypatch.setattr(engine, "_pump", lambda _: 1 / 0)
        assert engine._wait_for(lambda: engine._crash is not None, timeout_s=30.0)
        assert isinstance(engine._crash, ZeroDivisionError)
    finally:
        engine._close()
