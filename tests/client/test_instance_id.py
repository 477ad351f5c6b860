"""An instance id that an unanswered join, or a member that died, may still hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_groups.client import Channel
from spark_groups.errors import ErrorCode, GroupError
from spark_groups.protocol import messages as m
from tests.client.hands import Hands


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("may_have_arrived", [False, True])
def test_instance_id_that_an_unanswered_join_may_hold_is_released_before_the_next(
    static: bool, may_have_arrived: bool
) -> None:
    hands = Hands(**({"instance_id": "i1"} if static else {}))
    hands.cluster()
    hands.fail(Channel.HEARTBEAT, may_have_arrived=may_have_arrived)
    hands.until(m.FindCoordinatorRequest)
    hands.cluster()
    again = hands.until(m.HeartbeatRequest)
    assert isinstance(again, m.HeartbeatRequest)
    if static and may_have_arrived:
        assert (again.member_id, again.member_epoch, again.instance_id) == ("m1", -2, "i1")
        hands.answer(Channel.HEARTBEAT, m.HeartbeatResponse(member_id="m1", member_epoch=-2))
        again = hands.until(m.HeartbeatRequest)
        assert isinstance(again, m.HeartbeatRequest)
    assert (again.member_id, again.member_epoch) == ("m1", 0)


@pytest.mark.parametrize(
    "fails_over",
    [
        lambda hands: hands.fail(Channel.HEARTBEAT, may_have_arrived=False),
        lambda hands: hands.beat(m.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)),
        lambda hands: hands.beat(
            m.HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ),
    ],
)
def test_wait_for_an_instance_id_is_counted_anew_when_the_coordinator_fails_over(
    fails_over: Callable[[Hands], object],
) -> None:
    hands = Hands(instance_id="i1", session_timeout_ms=12_000)
    hands.cluster()
    unreleased = m.HeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID)
    while hands.now < 8.0:
        hands.beat(unreleased)
    hands.until(m.HeartbeatRequest)
    fails_over(hands)
    # The holder may be dead and have a whole session since then.
    while hands.now < 18.0:
        hands.until(m.HeartbeatRequest) if hands.client.coordinator else hands.cluster()
        if Channel.HEARTBEAT in hands.under_way:
            hands.beat(unreleased)
        else:
            hands.wait(0.1)
    hands.client.check()
    while hands.now < 40.0 and hands.client.member.failure is None:
        hands.beat(unreleased)
    with pytest.raises(GroupError, match="its holder lives"):
        hands.client.check()
