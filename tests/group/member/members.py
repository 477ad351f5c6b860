"""Members for tests: in any state, come to by legal inputs only, and answers for them."""

from __future__ import annotations

import uuid

from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import Assignment

S = MemberState
TOPIC = uuid.UUID(int=7)
INTERVAL_MS = 5_000


def parts(*indexes: int) -> Assignment:
    return Assignment.of({TOPIC: indexes})


def member(**config: object) -> Member:
    ids = (f"m{number}" for number in range(1, 1_000))
    subscription = Subscription.of_names("orders")
    made = MemberConfig(group_id="g", subscription=subscription, **config)  # type: ignore[arg-type]
    return Member(made, lambda: next(ids))


def accepted(
    epoch: int, assignment: Assignment | None = None, throttle_ms: int = 0
) -> HeartbeatResponse:
    return HeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        throttle_time_ms=throttle_ms,
        assignment=assignment,
    )


def refused(code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code, error_message="why")


def beat(m: Member, response: HeartbeatResponse | None) -> HeartbeatRequest:
    """Jump to the next heartbeat and answer it; None: it gets no answer."""
    now = m.next_wakeup()
    assert now is not None
    request = m.poll_heartbeat(now)
    assert request is not None
    if response is None:
        m.handle_failure(now)
    else:
        m.handle_response(response, now)
    return request


def in_state(state: MemberState, **config: object) -> Member:
    """A member that came to a state by legal inputs only."""
    m = member(**config)
    if state is S.UNSUBSCRIBED:
        return m
    if state is S.WARMING_UP:
        m.warm_up()
        return m
    m.join(0.0)
    if state is S.FENCED:
        m.lose("reason", 0.0, new_id=True)
    if state in (S.JOINING, S.FENCED):
        return m
    beat(m, accepted(3, parts(0, 1)))
    if state is S.ACKNOWLEDGING:
        m.poll_events()
        return m
    beat(m, accepted(3))
    if state is S.RECONCILING:
        beat(m, accepted(3, parts(0)))
    elif state is S.FATAL:
        m.fail("no", 1.0)
    elif state in (S.PREPARE_LEAVING, S.LEAVING):
        m.leave(1.0)
        if state is S.LEAVING:
            m.leave_now(1.0)
    m.poll_events()
    return m


def is_full(request: HeartbeatRequest) -> bool:
    return (
        request.rebalance_timeout_ms > 0
        and request.topic_partitions is not None
        and request.subscribed_topic_names == ("orders",)
    )


def names(value: object) -> str:
    """Return the test id of a parameter."""
    return str(getattr(value, "name", value))


SENDING = [S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE, S.PREPARE_LEAVING, S.LEAVING]
"""The states in which a member sends heartbeats."""
