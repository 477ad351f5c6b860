"""How a client behaves unless it is told otherwise."""

from __future__ import annotations

from spark_groups.client.client_config import ClientConfig
from spark_groups.client.liveness import LivenessLimits
from spark_groups.offsets.starting import StartingOffsets, StartingPoint
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.subscription import Subscription


def test_defaults_are_the_careful_ones() -> None:
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders")),
        starting_offsets=StartingOffsets(StartingPoint.LATEST),
    )
    assert (config.read_committed, config.fail_on_data_loss) == (False, True)
    assert config.liveness == LivenessLimits(max_idle_s=None)
