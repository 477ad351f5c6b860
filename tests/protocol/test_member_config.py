"""What a member is unless it is told otherwise."""

from __future__ import annotations

from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.subscription import Subscription


def test_defaults_are_those_of_kafka() -> None:
    config = MemberConfig(group_id="g", subscription=Subscription.of_names("orders"))
    assert (config.rebalance_timeout_ms, config.session_timeout_ms) == (300_000, 45_000)
    assert (config.instance_id, config.rack_id, config.server_assignor) == (None, None, None)
    assert config.fast_heartbeats
    assert config.await_instance, "a crash must not cost a query its static membership"
