"""The fixed configuration of a client."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.group.batches.available_now_wait import USUAL_WAIT, AvailableNowWait
from spark_groups.group.batches.liveness import ADAPTIVE, LivenessLimits
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.member.member_config import MemberConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The fixed configuration of a client.

    Args:
        member: Group, subscription and other member properties.
        liveness: How long the query may be idle before its member leaves.
        available_now_wait: How AvailableNow ends if partitions are missing.
        request_timeout_s: The longest time of one attempt of a request
            (`kafka.request.timeout.ms`).
        command_options: The options with which `spark-groups` reaches the same brokers, for
            messages that name a command.
    """

    member: MemberConfig
    starting_offsets: StartingOffsets
    read_committed: bool = False
    fail_on_data_loss: bool = True
    liveness: LivenessLimits = ADAPTIVE
    available_now_wait: AvailableNowWait = USUAL_WAIT
    request_timeout_s: float = 30.0
    command_options: str = ""
