"""What messages say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.types import Assignment

OWNED = Assignment(frozenset())


@pytest.mark.parametrize(
    ("said", "is_full"),
    [
        ({}, False),
        ({"topic_partitions": OWNED, "rebalance_timeout_ms": 1}, False),
        ({"topic_partitions": OWNED, "subscribed_topic_names": ()}, False),
        ({"rebalance_timeout_ms": 1, "subscribed_topic_names": ()}, False),
        *(
            ({"topic_partitions": OWNED, "rebalance_timeout_ms": 1, **topics}, True)
            for topics in ({"subscribed_topic_names": ()}, {"subscribed_topic_regex": "a.*"})
        ),
    ],
)
def test_a_heartbeat_is_full_that_says_all_three(said: dict[str, Any], is_full: bool) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m", member_epoch=1, **said)
    assert request.is_full is is_full
