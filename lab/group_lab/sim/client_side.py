"""Members that compute the target of their group (KIP-848, "Client Side Mode").

In these runs all members name a client-side assignor: a network of their own adds it to their
heartbeats, and a member that is asked prepares, computes and installs on another connection. The
production client itself has no client-side assignors, because Kafka never shipped them.

A computation may take longer than the coordinator waits, fail because members run different
topologies, or be repeated because a member has new metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from math import inf
from typing import Any, Final

from group_lab.assignors.partition_assignor import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    GroupAssignment,
    MemberAssignment,
    Metadata,
    PartitionAssignor,
    TopologyAssignor,
)
from group_lab.assignors.registry import assignors
from group_lab.coordinator import messages as c
from group_lab.coordinator.member import ClientAssignor
from group_lab.sim.chance import Chance
from group_lab.sim.coordination import PASSING_ERRORS
from group_lab.sim.facts import Computed
from group_lab.sim.network import Network, Serve
from group_lab.sim.schedule import Schedule
from group_lab.sim.swarm import Swarm
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import NO_PARTITIONS

TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.5
SLOW_SHARE: Final = 0.1
RETRIED_ERRORS: Final = (*PASSING_ERRORS, ErrorCode.STALE_MEMBER_EPOCH)


class Reason(Enum):
    """Why a member has new metadata."""

    NEW_VERSION = 1
    NEW_TOPOLOGY = 2


@dataclass(slots=True)
class _Member:
    """What the assignor side of a member knows of itself.

    Args:
        full: Its last heartbeat with all fields.
        known: The assignor as the coordinator knows it.
        computes_until: Until when it computes, in seconds; 0 if it does not.
    """

    full: m.HeartbeatRequest | None = None
    known: ClientAssignor | None = None
    member_epoch: int = 0
    node: m.Node | None = None
    computes_until: float = 0.0


@dataclass(slots=True)
class Application:
    """One run of an application: its assignor, and its members by id.

    Args:
        new_version_at: When its metadata has another version.
        new_topology_at: When it runs another topology.
    """

    assignor: TopologyAssignor
    new_version_at: float = inf
    new_topology_at: float = inf
    members: dict[str, _Member] = field(default_factory=dict)

    def deploy(self, now: float) -> None:
        """Make the changes that are due."""
        assignor = self.assignor
        if not assignor.version and now >= self.new_version_at:
            assignor.version, assignor.reason = 1, Reason.NEW_VERSION.value
        if not assignor.topology and now >= self.new_topology_at:
            assignor.topology, assignor.reason = b"2", Reason.NEW_TOPOLOGY.value


class ComputingNetwork(Network):
    """A network whose members have client-side assignors."""

    def __init__(
        self,
        schedule: Schedule,
        chance: Chance,
        swarm: Swarm,
        serve: Serve,
        serve_late: Serve,
    ) -> None:
        super().__init__(schedule, chance, swarm, serve, serve_late)
        self.publish: Callable[[Computed], None] = lambda _: None
        """Called with each result."""
        self.applications: dict[str, Application] = {}
        """By the incarnation that sends."""
        has_faults = not swarm.is_calm
        self.slow_share = SLOW_SHARE if has_faults else 0.0
        """How often a computation takes longer than the coordinator waits."""
        self.is_redeployed = has_faults and chance.random() < 0.5
        """Whether the applications get new metadata, each at its own time."""

    def send(
        self,
        sender: str,
        outgoing: Outgoing,
        answered: Callable[[m.Response], None],
        failed: Callable[[m.RequestFailed], None],
    ) -> None:
        """Carry a request; heartbeats name the assignor of the sender."""
        request = outgoing.request
        if not isinstance(request, m.HeartbeatRequest) or request.member_epoch < 0:
            super().send(sender, outgoing, answered, failed)
            return
        application = self._application(sender)
        application.deploy(self._schedule.now)
        member = application.members.setdefault(request.member_id, _Member())
        member.node = outgoing.node
        named = _with_assignor(member, request, entry_of(application.assignor))

        def take(response: m.Response) -> None:
            self._take(sender, named, response)
            answered(response)

        super().send(sender, replace(outgoing, request=named), take, failed)

    def _application(self, sender: str) -> Application:
        if sender not in self.applications:
            swarm = self._swarm
            algorithm = assignors(stable_extras=True, range_is_sticky=True)[swarm.assignor.value]
            application = Application(TopologyAssignor(algorithm))
            if self.is_redeployed:
                application.new_version_at = self._chance.uniform(0.0, swarm.chaos_s)
                application.new_topology_at = self._chance.uniform(0.0, swarm.chaos_s)
            self.applications[sender] = application
        return self.applications[sender]

    def _take(self, sender: str, request: c.KipHeartbeatRequest, response: m.Response) -> None:
        assert isinstance(response, m.HeartbeatResponse)
        application = self.applications[sender]
        member = application.members[request.member_id]
        if response.error_code or not isinstance(response, c.KipHeartbeatResponse):
            return
        if request.client_assignors:
            member.known = request.client_assignors[0]
        if response.assignment is not None and response.member_epoch != member.member_epoch:
            application.assignor.on_assignment(
                response.assignment_error, received(response), response.member_epoch
            )
        member.member_epoch = response.member_epoch
        now = self._schedule.now
        if response.should_compute_assignment and now >= member.computes_until:
            member.computes_until = now + self._swarm.rebalance_s
            self._prepare(sender, request.group_id, request.member_id)

    def _prepare(self, sender: str, group_id: str, member_id: str) -> None:
        member = self.applications[sender].members[member_id]

        def make() -> c.PrepareAssignmentRequest:
            return c.PrepareAssignmentRequest(
                group_id=group_id, member_id=member_id, member_epoch=member.member_epoch
            )

        def prepared(response: Any) -> None:
            if response.error_code:
                member.computes_until = 0.0
                return
            takes_s = self._chance.choice((0.0, 0.05, 0.5))
            if self.is_faulty and self._chance.random() < self.slow_share:
                takes_s = 1.5 * self._swarm.rebalance_s
            self._schedule.after(
                takes_s, lambda: self._install(sender, group_id, member_id, response)
            )

        self._ask(sender, member, make, prepared)

    def _install(
        self, sender: str, group_id: str, member_id: str, prepared: c.PrepareAssignmentResponse
    ) -> None:
        application = self.applications[sender]
        member = application.members[member_id]
        result = application.assignor.assign(spec_of(prepared))
        computed = installed_members(result)

        def make() -> c.InstallAssignmentRequest:
            return c.InstallAssignmentRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=member.member_epoch,
                group_epoch=prepared.group_epoch,
                error=result.error,
                members=computed,
            )

        def installed(response: Any) -> None:
            member.computes_until = 0.0
            self.publish(Computed(sender, prepared.group_epoch, result.error, response.error_code))

        self._ask(sender, member, make, installed)

    def _ask(
        self,
        sender: str,
        member: _Member,
        make: Callable[[], Any],
        answered: Callable[[Any], None],
    ) -> None:
        """Send a request until it has an answer, for as long as the coordinator waits."""

        def again() -> None:
            if self._schedule.now < member.computes_until:
                self._schedule.after(RETRY_S, lambda: self._ask(sender, member, make, answered))

        def take(response: Any) -> None:
            if response.error_code in RETRIED_ERRORS:
                again()
            else:
                answered(response)

        outgoing = Outgoing(Channel.OFFSETS, make(), member.node, TIMEOUT_S)
        super().send(sender, outgoing, take, lambda _: again())


def entry_of(assignor: PartitionAssignor) -> ClientAssignor:
    """Return an assignor as heartbeats name it."""
    own = assignor.metadata()
    return ClientAssignor(
        assignor.name,
        assignor.minimum_version,
        assignor.maximum_version,
        own.reason,
        own.metadata.version,
        own.metadata.data,
    )


def _with_assignor(
    member: _Member, request: m.HeartbeatRequest, entry: ClientAssignor
) -> c.KipHeartbeatRequest:
    """Return a heartbeat that names an assignor if the coordinator does not know it so.

    At member epoch 0 every heartbeat is a join and has all fields (docs/decisions/0012).
    """
    if request.rebalance_timeout_ms != -1 and request.topic_partitions is not None:
        member.full = request
    if request.member_epoch == m.JOIN_GROUP_MEMBER_EPOCH:
        member.known = None
        if member.full and request is not member.full:
            owned = request.topic_partitions or NO_PARTITIONS
            request = replace(member.full, topic_partitions=owned)
    values = {field_.name: getattr(request, field_.name) for field_ in fields(m.HeartbeatRequest)}
    values["server_assignor"] = None
    named = None if member.known == entry else (entry,)
    return c.KipHeartbeatRequest(**values, client_assignors=named)


def received(response: c.KipHeartbeatResponse) -> MemberAssignment:
    """Return what a member's assignor gets: the whole target, and its metadata.

    Partitions that other members have not released yet are part of it (KIP-848, "onAssignment").
    """
    return MemberAssignment(
        (response.assignment or NO_PARTITIONS) | response.pending_topic_partitions,
        Metadata(response.metadata_version, response.metadata_bytes),
    )


def spec_of(prepared: c.PrepareAssignmentResponse) -> AssignmentSpec:
    """Return the input of a client-side assignor."""
    members = {
        member.member_id: AssignmentMemberSpec(
            member.subscribed_topic_ids,
            member.instance_id,
            member.rack_id,
            member.reason,
            Metadata(member.metadata_version, member.metadata_bytes),
            member.topic_partitions,
        )
        for member in prepared.members
    }
    topics = {
        topic.topic_id: AssignmentTopicMetadata(topic.topic_name, topic.num_partitions)
        for topic in prepared.topics
    }
    return AssignmentSpec(members, topics)


def installed_members(result: GroupAssignment) -> tuple[c.InstalledMember, ...]:
    """Return the output of a client-side assignor as ConsumerGroupInstallAssignment has it."""
    return tuple(
        c.InstalledMember(
            member_id=member_id,
            partitions=own.target,
            metadata_version=own.metadata.version,
            metadata_bytes=own.metadata.data,
        )
        for member_id, own in result.members.items()
    )
