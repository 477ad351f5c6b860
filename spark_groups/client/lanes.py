"""What a client wants to send, and over which of its connections.

A broker answers one connection strictly in order, so a heartbeat must never share one with a commit
(measured: a heartbeat behind a 2 s request waited 1.9 s), nor the search for a coordinator with a
question to a leader that is dead. Each lane carries one request at a time.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from spark_groups.protocol.messages import (
    DescribeGroupRequest,
    FindCoordinatorRequest,
    GroupSettingsRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    Node,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    Request,
)
from spark_groups.values import dataclass


class Lane(Enum):
    """The four ways out of a client."""

    HEARTBEAT = "to the coordinator: heartbeats, and nothing else"
    OFFSETS = "to the coordinator: commits, fetches, descriptions"
    SEARCH = "to any broker: who the coordinator is, and nothing else"
    CLUSTER = "to any broker: metadata, settings, where partitions start"

    # Each lane is one object: its identity is a hash that costs no call, unlike that of its name.
    __hash__ = object.__hash__

    @property
    def leads_to_coordinator(self) -> bool:
        return self is Lane.HEARTBEAT or self is Lane.OFFSETS


TIMEOUT_S: Final[dict[type, float]] = {
    HeartbeatRequest: 5.0,
    OffsetCommitRequest: 10.0,
    OffsetFetchRequest: 10.0,
    DescribeGroupRequest: 5.0,
    FindCoordinatorRequest: 3.0,
    GroupSettingsRequest: 10.0,
    MetadataRequest: 5.0,
    ListOffsetsRequest: 10.0,
    OffsetForLeaderEpochRequest: 10.0,
}
"""How long each request may take; a broker's own limit for a commit is 5 s."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send now.

    Args:
        lane: The connection to use; nothing else is under way on it.
        request: What to send.
        node: The coordinator, on the two lanes that lead to it.
    """

    lane: Lane
    request: Request
    node: Node | None = None

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_S[type(self.request)]
