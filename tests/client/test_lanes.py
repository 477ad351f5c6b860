"""Requests on their lanes, and pauses before something is tried again."""

from __future__ import annotations

from typing import get_args

import pytest

from spark_groups.client.lanes import TIMEOUT_S, Backoff, Lane, Outgoing
from spark_groups.protocol.messages import FindCoordinatorRequest, Request


def test_every_request_has_a_deadline() -> None:
    assert set(TIMEOUT_S) == set(get_args(Request))
    outgoing = Outgoing(Lane.CLUSTER, FindCoordinatorRequest(group_id="g"))
    assert outgoing.timeout_s == TIMEOUT_S[FindCoordinatorRequest] > 0


def test_pauses_double_up_to_their_limit_and_begin_anew() -> None:
    backoff, pauses = Backoff(0.1, 1.0), []
    assert backoff.not_before == 0.0
    for _ in range(6):
        backoff.failed(10.0)
        pauses.append(backoff.not_before - 10.0)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.succeeded()
    assert backoff.not_before == 0.0
    backoff.failed(20.0)
    assert backoff.not_before == pytest.approx(20.1)
