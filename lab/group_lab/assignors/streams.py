"""Kafka Streams as a client-side assignor of KIP-848: tasks, warm-ups, and standbys.

A worked example: the KIP gives the schemas and says when a member reports its lags; where tasks go
is `streams_placement`. Kafka Streams never shipped it.

Source: KIP-848, "Streams" and "Streams Member Metadata and Assignment Metadata".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid5

from group_lab.assignors.partition_assignor import (
    AssignmentSpec,
    AssignmentTopicMetadata,
    AssignorMetadata,
    GroupAssignment,
    MemberAssignment,
    Metadata,
)
from group_lab.assignors.streams_metadata import (
    STREAMS_VERSION,
    AssignmentMetadata,
    MemberMetadata,
    MemberReason,
    StreamsError,
    TaskId,
    decode_assignment_metadata,
    decode_member,
    encode_assignment_metadata,
    encode_member,
)
from group_lab.assignors.streams_placement import StreamsConfig, StreamsMember, Tasks, place
from spark_groups.errors import ProtocolError
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

GROWTHS_OF_A_FAILURE: Final = 3
"""A lag that grows in so many measurements in sequence is "consistently increasing"."""


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology whose tasks share nothing with those of other parts.

    Args:
        topics: Its source topics, which no other subtopology has.
        is_stateful: Whether its tasks have state to restore.
    """

    topics: tuple[str, ...]
    is_stateful: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """What an application runs; a subtopology is known by its place."""

    subtopologies: tuple[Subtopology, ...]

    @property
    def topology_hash(self) -> UUID:
        """Equal for the same topology."""
        return uuid5(NAMESPACE_OID, repr(self.subtopologies))


@dataclass(slots=True)
class StreamsAssignor:
    """The assignor of one consumer of an application.

    Args:
        process_id: Its instance.
        topology: What it runs.
        user_end_point: Where other instances reach this one.
        client_tags: Its tags; the placement ignores them, as this model ignores racks.
        lags: The lags that it reports, in records; first, those of the state on its disk.
        reason: Why it changed its metadata.
        assigned: Its tasks, by the last assignment.
        error: That of the last assignment.
    """

    process_id: UUID
    topology: Topology
    config: StreamsConfig = field(default_factory=StreamsConfig)
    user_end_point: bytes | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    reason: MemberReason = MemberReason.NONE
    assigned: AssignmentMetadata = field(default_factory=AssignmentMetadata)
    error: StreamsError = StreamsError.NONE
    _measured: Mapping[TaskId, int] = field(default_factory=dict)
    _growths: Mapping[TaskId, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "streams"

    @property
    def minimum_version(self) -> int:
        return STREAMS_VERSION

    @property
    def maximum_version(self) -> int:
        return STREAMS_VERSION

    def metadata(self) -> AssignorMetadata:
        """Return its instance, its topology, and its lags as of the last reason."""
        data = encode_member(
            MemberMetadata(
                process_id=self.process_id,
                user_end_point=self.user_end_point,
                client_tags=self.client_tags,
                topology_hash=self.topology.topology_hash,
                task_lag=self.lags,
            )
        )
        return AssignorMetadata(self.reason, Metadata(STREAMS_VERSION, data))

    def measure(self, lags: Mapping[TaskId, int]) -> None:
        """Note the lags of all tasks whose state it has, and report them if there is a reason.

        New lags in each heartbeat would cause one assignment after the other. A reason is a replica
        that has caught up, or one whose lag only grows.

        Args:
            lags: In records, without those of its active tasks.
        """
        self._growths = {
            task: self._growths.get(task, 0) + 1 if lag > self._measured.get(task, lag) else 0
            for task, lag in lags.items()
        }
        self._measured = dict(lags)
        limit = self.config.acceptable_recovery_lag
        replicas = lags.keys() & {*self.assigned.standby_tasks, *self.assigned.warmup_tasks}
        if any(lags[replica] <= limit < self.lags.get(replica, inf) for replica in replicas):
            self._report(MemberReason.WARM_UP_READY)
        elif any(
            lags[replica] > limit and self._growths[replica] == GROWTHS_OF_A_FAILURE
            for replica in replicas
        ):
            self._report(MemberReason.WARM_UP_FAILED)

    def deploy(self, topology: Topology) -> None:
        """Run another topology from now on."""
        self.topology = topology
        self._report(MemberReason.TOPOLOGY_CHANGED)

    def shut_down(self) -> None:
        """Ask the whole application to stop."""
        self._report(MemberReason.SHUTDOWN)

    def _report(self, reason: MemberReason) -> None:
        self.reason = reason
        self.lags = self._measured or self.lags

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Return the targets, with the tasks of each member as metadata; or one of the errors."""
        if any(member.reason == MemberReason.SHUTDOWN for member in spec.members.values()):
            return GroupAssignment(error=StreamsError.SHUTDOWN)
        try:
            known = {
                member_id: decode_member(member.metadata.data)
                for member_id, member in spec.members.items()
            }
        except ProtocolError:
            return GroupAssignment(error=StreamsError.ASSIGNMENT_ERROR)
        own_hash = self.topology.topology_hash
        if any(each.topology_hash != own_hash for each in known.values()):
            return GroupAssignment(error=StreamsError.INCONSISTENT_TOPOLOGY)
        tasks = self._tasks(spec.topics)
        if tasks is None:
            return GroupAssignment(error=StreamsError.ASSIGNMENT_ERROR)
        stateful = frozenset(
            task for task in tasks if self.topology.subtopologies[task.subtopology].is_stateful
        )
        placed = place(tasks, stateful, _members(spec, known, tasks), self.config)
        targets = {member_id: _inputs(each.active, tasks) for member_id, each in placed.items()}
        by_host = _by_host(targets, known)
        return GroupAssignment(
            {
                member_id: MemberAssignment(
                    targets[member_id],
                    Metadata(
                        spec.members[member_id].metadata.version,
                        encode_assignment_metadata(_metadata(each, tasks, by_host)),
                    ),
                )
                for member_id, each in placed.items()
            }
        )

    def _tasks(
        self, topics: Mapping[TopicId, AssignmentTopicMetadata]
    ) -> dict[TaskId, Assignment] | None:
        """Return the input partitions of each task; None if topics are not those of the topology.

        A subtopology has a task for each partition number of its source topics.
        """
        by_name = {each.topic_name: (topic_id, each) for topic_id, each in topics.items()}
        sources = [name for each in self.topology.subtopologies for name in each.topics]
        if sorted(sources) != sorted(by_name):
            return None
        tasks: dict[TaskId, Assignment] = {}
        for number, each in enumerate(self.topology.subtopologies):
            for topic_id, topic in (by_name[name] for name in each.topics):
                for partition in range(topic.num_partitions):
                    task = TaskId(number, partition)
                    own = Assignment(frozenset({TopicIdPartition(topic_id, partition)}))
                    tasks[task] = tasks.get(task, NO_PARTITIONS) | own
        return tasks

    def on_assignment(self, error: int, assignment: MemberAssignment, _member_epoch: int) -> None:
        """Note the tasks and the error.

        Raises:
            ProtocolError: The metadata of the assignment cannot be read.
        """
        self.error = StreamsError(error)
        data = assignment.metadata.data
        self.assigned = decode_assignment_metadata(data) if data else AssignmentMetadata()


def _members(
    spec: AssignmentSpec,
    known: Mapping[str, MemberMetadata],
    tasks: Mapping[TaskId, Assignment],
) -> dict[str, StreamsMember]:
    """Return the members; the owner of a task is the one whose target has its first partition.

    Targets, not the metadata of assignments, say where a task is active.
    """
    owners = {
        partition: member_id
        for member_id, member in spec.members.items()
        for partition in member.target
    }
    active: dict[str, set[TaskId]] = {member_id: set() for member_id in spec.members}
    for task, inputs in tasks.items():
        owner = next((owners[each] for each in inputs if each in owners), None)
        if owner is not None:
            active[owner].add(task)
    return {
        member_id: StreamsMember(
            each.process_id,
            frozenset(active[member_id]),
            each.task_lag,
            gave_up=spec.members[member_id].reason == MemberReason.WARM_UP_FAILED,
        )
        for member_id, each in known.items()
    }


def _inputs(active: set[TaskId], tasks: Mapping[TaskId, Assignment]) -> Assignment:
    return Assignment(
        frozenset(partition for task in active for partition in tasks[task].partitions)
    )


def _by_host(
    targets: Mapping[str, Assignment], known: Mapping[str, MemberMetadata]
) -> dict[bytes, Assignment]:
    found: dict[bytes, Assignment] = {}
    for member_id, target in targets.items():
        host = known[member_id].user_end_point
        if host is not None:
            found[host] = found.get(host, NO_PARTITIONS) | target
    return found


def _metadata(
    placed: Tasks, tasks: Mapping[TaskId, Assignment], by_host: Mapping[bytes, Assignment]
) -> AssignmentMetadata:
    return AssignmentMetadata(
        active_tasks=tuple(sorted(placed.active)),
        standby_tasks={each: tasks[each] for each in sorted(placed.standby)},
        warmup_tasks={each: tasks[each] for each in sorted(placed.warmup)},
        partitions_by_host=by_host,
    )
