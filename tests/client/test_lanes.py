"""Requests on their lanes."""

from __future__ import annotations

from typing import get_args

from spark_groups.client.lanes import TIMEOUT_S, Lane, Outgoing
from spark_groups.protocol.messages import FindCoordinatorRequest, Request


def test_every_request_has_a_deadline() -> None:
    assert set(TIMEOUT_S) == set(get_args(Request))
    outgoing = Outgoing(Lane.SEARCH, FindCoordinatorRequest(group_id="g"))
    assert outgoing.timeout_s == TIMEOUT_S[FindCoordinatorRequest] > 0
