"""How a client behaves, for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.client.liveness import ADAPTIVE, LivenessLimits
from spark_groups.offsets.settling import USUAL_SETTLING, Settling
from spark_groups.offsets.starting import StartingOffsets
from spark_groups.protocol.member_config import MemberConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves, for as long as it lives.

    Args:
        member: Group, subscription and what else the coordinator is told.
        starting_offsets: Where the group starts in what it has never read.
        read_committed: True for `kafka.isolation.level=read_committed`.
        fail_on_data_loss: `failOnDataLoss`.
        liveness: How long the query may be silent before its member leaves.
        settling: How AvailableNow ends where partitions do not come.
        command_options: What a command of `spark-groups` needs to reach the same brokers, for
            messages that tell what to run.
    """

    member: MemberConfig
    starting_offsets: StartingOffsets
    read_committed: bool = False
    fail_on_data_loss: bool = True
    liveness: LivenessLimits = ADAPTIVE
    settling: Settling = USUAL_SETTLING
    command_options: str = ""
