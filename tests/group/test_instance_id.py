"""An instance id that an unanswered join, or a member that died, may still hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_groups.errors import ErrorCode, GroupError
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from tests.group.harness import ClientHarness


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("may_have_arrived", [False, True])
def test_instance_id_that_an_unanswered_join_may_hold_is_released_before_the_next(
    static: bool, may_have_arrived: bool
) -> None:
    harness = ClientHarness(**({"instance_id": "i1"} if static else {}))
    harness.cluster()
    harness.fail(Channel.HEARTBEAT, may_have_arrived=may_have_arrived)
    harness.until(m.FindCoordinatorRequest)
    harness.cluster()
    again = harness.until(m.HeartbeatRequest)
    assert isinstance(again, m.HeartbeatRequest)
    if static and may_have_arrived:
        assert (again.member_id, again.member_epoch, again.instance_id) == ("m1", -2, "i1")
        harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_id="m1", member_epoch=-2))
        again = harness.until(m.HeartbeatRequest)
        assert isinstance(again, m.HeartbeatRequest)
    assert (again.member_id, again.member_epoch) == ("m1", 0)


@pytest.mark.parametrize(
    "fails_over",
    [
        lambda harness: harness.fail(Channel.HEARTBEAT, may_have_arrived=False),
        lambda harness: harness.beat(m.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)),
        lambda harness: harness.beat(
            m.HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ),
    ],
)
def test_wait_for_an_instance_id_restarts_when_the_coordinator_fails_over(
    fails_over: Callable[[ClientHarness], object],
) -> None:
    harness = ClientHarness(instance_id="i1", session_timeout_ms=12_000)
    harness.cluster()
    unreleased = m.HeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID)
    while harness.now < 8.0:
        harness.beat(unreleased)
    harness.until(m.HeartbeatRequest)
    fails_over(harness)
    # The holder may be dead and have a whole session since then.
    while harness.now < 18.0:
        harness.until(m.HeartbeatRequest) if harness.client.parts.search.node else harness.cluster()
        if Channel.HEARTBEAT in harness.under_way:
            harness.beat(unreleased)
        else:
            harness.wait(0.1)
    harness.client.check()
    while harness.now < 40.0 and harness.client.parts.member.failure is None:
        harness.beat(unreleased)
    with pytest.raises(GroupError, match="its holder is alive"):
        harness.client.check()
