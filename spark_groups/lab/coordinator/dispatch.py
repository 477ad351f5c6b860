"""Which function answers which request and which timer: one table each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_groups.lab.coordinator import (
    assigning,
    client_assignment,
    deletion,
    describe,
    heartbeat,
    offsets,
    patterns,
    removal,
    sessions,
)
from spark_groups.lab.coordinator.effects import Outcome, Surroundings, Timer, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.messages import (
    CoordinatorResponse,
    DeleteGroupsRequest,
    InstallAssignmentRequest,
    KipHeartbeatRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
    PrepareAssignmentRequest,
)
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.protocol.messages import (
    DescribeGroupRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

Read = Callable[[ConsumerGroup, Any, Profile, Surroundings], CoordinatorResponse]
Write = Callable[[ConsumerGroup, Any, Profile, Surroundings], Outcome[Any]]
Fired = Callable[[ConsumerGroup, Timer, Profile, Surroundings], Outcome[None]]
OfGroup = Callable[[ConsumerGroup, Profile, Surroundings], Outcome[None]]

READS: Final[Mapping[type, Read]] = {DescribeGroupRequest: describe.describe}
"""What is answered from what is replicated, at once."""
WRITES: Final[Mapping[type, Write]] = {
    DeleteGroupsRequest: deletion.delete,
    HeartbeatRequest: heartbeat.heartbeat,
    KipHeartbeatRequest: heartbeat.heartbeat,
    LeaveGroupRequest: removal.remove,
    OffsetCommitRequest: offsets.commit,
    OffsetDeleteRequest: offsets.delete,
    # With requireStable a fetch waits for the commits before it (GroupCoordinatorService).
    OffsetFetchRequest: offsets.fetch,
    PrepareAssignmentRequest: client_assignment.prepare,
    InstallAssignmentRequest: client_assignment.install,
}
"""What is answered from the latest state, once its records are replicated."""
FIRED: Final[Mapping[TimerKind, Fired]] = {
    TimerKind.SESSION: sessions.fired,
    TimerKind.REBALANCE: sessions.fired,
    TimerKind.CLIENT_ASSIGNMENT: client_assignment.given_up,
    TimerKind.REGEX: patterns.fired,
    TimerKind.ASSIGNMENT: assigning.fired,
}
"""What a timer does."""
LOADED: Final[tuple[OfGroup, ...]] = (sessions.loaded, assigning.loaded)
"""What is done, in this order, for each group of a log that another coordinator wrote."""
