"""What a scenario is played in: a cluster that is asked, and a clock; nothing says how.

A real broker is one world (`broker_world`), the model of a coordinator another (`model_world`).
Nothing here, and nothing in the commands, assumes sockets or that time passes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from group_lab.coordinator import messages as c
from group_lab.coordinator.classic import messages as k
from spark_groups.group.member import messages as m
from spark_groups.types import TopicId

CLIENT_ID = "scenario"
"""The default client id."""

Operation = (
    c.ListGroupsRequest | c.DeleteGroupsRequest | c.LeaveGroupRequest | c.OffsetDeleteRequest
)
Operated = (
    c.ListGroupsResponse | c.DeleteGroupsResponse | c.LeaveGroupResponse | c.OffsetDeleteResponse
)

ClassicRequest = (
    k.JoinGroupRequest | k.SyncGroupRequest | k.ClassicHeartbeatRequest | k.DescribeGroupsRequest
)
ClassicResponse = (
    k.JoinGroupResponse
    | k.SyncGroupResponse
    | k.ClassicHeartbeatResponse
    | k.DescribeGroupsResponse
)


class Asked(Protocol):
    """A request that the coordinator may answer later."""

    def answer(self) -> ClassicResponse | None:
        """Return the answer, None as long as there is none."""


@dataclass(frozen=True)
class Listed:
    """A group as ListGroups shows it."""

    group_id: str
    group_type: str
    group_state: str


class ClassicClient(Protocol):
    """A consumer of the classic protocol, which lives by itself while it is polled."""

    def poll(self) -> dict[str, tuple[int, ...]]:
        """Poll for a moment and return its partitions by topic."""

    def close(self) -> None:
        """Leave the group."""


class World(Protocol):
    """A cluster and its clock."""

    def now(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    # Topics: the coordinator knows of the change when these return.

    def create_topic(self, name: str, partitions: int) -> TopicId:
        """Create a topic."""

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def produce(self, topic: str, rows: Mapping[int, int]) -> None:
        """Write so many rows to each partition of a topic."""

    # Requests.

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        """Send a request as a member of this project does; the client id is a heartbeat's."""

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Asked:
        """Send a request of the classic protocol; joins and syncs may wait for other members."""

    def settle(self) -> None:
        """Return when everything sent so far is either answered or waits for something else."""

    def commit(
        self, request: m.OffsetCommitRequest, names: Mapping[TopicId, str], api_version: int
    ) -> Mapping[tuple[TopicId, int], int]:
        """Send an OffsetCommit of one version, by name before v10, and return the error codes."""

    def fetch(
        self, request: m.OffsetFetchRequest, names: Mapping[TopicId, str], api_version: int
    ) -> m.OffsetFetchResponse:
        """Send an OffsetFetch of one version, by name before v10."""

    def list_groups(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[Listed]:
        """List the groups of this scenario."""

    def await_patterns(self) -> None:
        """Return when the patterns that were asked for are looked up."""

    # What operators do.

    def operate(self, request: Operation) -> Operated:
        """Send a request that only operators send."""

    def configure(self, group_id: str, values: Mapping[str, str | None]) -> tuple[int, str]:
        """Change a group's configuration (None removes a value); return code and message."""

    def configuration(self, group_id: str) -> dict[str, tuple[str, str]]:
        """Return a group's configuration: value and where it comes from."""

    def set_feature(self, name: str, level: int) -> None:
        """Set a feature of the cluster to a level, in effect when it returns."""

    def allow(self, resource: str, name: str, operation: str) -> None:
        """Forbid everybody everything on a group or a topic but one operation."""

    def restart(self) -> None:
        """Stop the coordinator and start it again, on the same log; return when it answers."""

    # Others in the group.

    def classic_client(
        self, client_id: str, group_id: str, topic: str, strategy: str
    ) -> ClassicClient:
        """Start a consumer of the classic protocol."""
