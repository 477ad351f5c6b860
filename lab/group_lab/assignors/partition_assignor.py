"""Client-side assignors of KIP-848: the interface that a consumer computes with, and one of them.

Names are those of the KIP's PartitionAssignor. Topics are given by id, like in
ConsumerGroupPrepareAssignment. Kafka never shipped this interface.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from group_lab.assignors.assignor import Assignor, AssignorError, GroupSpec, MemberSpec
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

NO_ERROR: Final = 0
NOT_COMPUTED: Final = 1
"""The error of a result if the algorithm failed."""
DIFFERENT_TOPOLOGIES: Final = 2
"""The error of a result if members do not run the same topology."""
ERRORS_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Metadata:
    """Bytes that an assignor understands, and the version of their schema."""

    version: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class AssignorMetadata:
    """What a member tells the assignor; a new reason or new metadata triggers a computation."""

    reason: int = 0
    metadata: Metadata = Metadata()


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """A member in the input of a client-side assignor.

    Args:
        subscribed: Ids of the topics it subscribes to.
        target: Its current target.
    """

    subscribed: frozenset[TopicId]
    instance_id: str | None = None
    rack_id: str | None = None
    reason: int = 0
    metadata: Metadata = Metadata()
    target: Assignment = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class AssignmentTopicMetadata:
    """A topic in the input of a client-side assignor."""

    topic_name: str
    num_partitions: int


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """The input of a client-side assignor: members by id, and topics by id."""

    members: Mapping[str, AssignmentMemberSpec]
    topics: Mapping[TopicId, AssignmentTopicMetadata]


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The target of a member, and metadata for its assignor."""

    target: Assignment = NO_PARTITIONS
    metadata: Metadata = Metadata(-1)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The result of a client-side assignor.

    Args:
        members: By member id.
        error: With one, the coordinator keeps the current targets.
    """

    members: Mapping[str, MemberAssignment] = field(default_factory=dict)
    error: int = NO_ERROR


class PartitionAssignor(Protocol):
    """A client-side assignor."""

    @property
    def name(self) -> str:
        """Its name, unique among the assignors of a group."""

    @property
    def minimum_version(self) -> int:
        """The least version of metadata that it reads."""

    @property
    def maximum_version(self) -> int:
        """The greatest version of metadata that it reads."""

    def metadata(self) -> AssignorMetadata:
        """Return what this member tells the member that computes."""

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Return the target of every member, or an error."""

    def on_assignment(self, error: int, assignment: MemberAssignment, member_epoch: int) -> None:
        """Note the result for this member; called once for each epoch.

        Args:
            assignment: The whole target, with partitions that others have not released yet.
        """


@dataclass(slots=True)
class TopologyAssignor:
    """Computes with a server-side algorithm if all members run the same topology.

    Like Kafka Streams it has an error for a group that is redeployed: while members run
    different topologies, targets stay as they are.

    Args:
        algorithm: Computes the targets.
        topology: What this member runs.
        version: The version of its metadata; it reads earlier ones.
        reason: Why it changed its metadata.
        errors: The errors of the results so far, oldest first, the last `ERRORS_KEPT` of them.
    """

    algorithm: Assignor
    topology: bytes = b""
    version: int = 0
    reason: int = 0
    errors: deque[int] = field(default_factory=lambda: deque(maxlen=ERRORS_KEPT))

    @property
    def name(self) -> str:
        return f"topology-{self.algorithm.name}"

    @property
    def minimum_version(self) -> int:
        return 0

    @property
    def maximum_version(self) -> int:
        return self.version

    def metadata(self) -> AssignorMetadata:
        """Return its topology."""
        return AssignorMetadata(self.reason, Metadata(self.version, self.topology))

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Return the targets; each member gets its own metadata back, in its version."""
        if len({member.metadata.data for member in spec.members.values()}) > 1:
            return GroupAssignment(error=DIFFERENT_TOPOLOGIES)
        members = {
            member_id: MemberSpec(
                member.subscribed, member.instance_id, member.rack_id, member.target
            )
            for member_id, member in spec.members.items()
        }
        counts = {topic_id: topic.num_partitions for topic_id, topic in spec.topics.items()}
        is_homogeneous = len({member.subscribed for member in members.values()}) <= 1
        try:
            targets = self.algorithm.assign(GroupSpec(members, is_homogeneous, counts))
        except AssignorError:
            return GroupAssignment(error=NOT_COMPUTED)
        return GroupAssignment(
            {
                member_id: MemberAssignment(target, spec.members[member_id].metadata)
                for member_id, target in targets.items()
            }
        )

    def on_assignment(self, error: int, _assignment: MemberAssignment, _member_epoch: int) -> None:
        """Note the error."""
        self.errors.append(error)
