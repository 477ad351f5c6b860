"""The commands of the incremental proposal's timelines: whole members in virtual time.

Each member is the simulation's `ClassicMembership` with the embedded protocol of the proposal; the
coordinator is the model of a classic group. Every round is printed in the proposal's notation, in
which partitions count from 1: what the members report in JoinGroup, and what the leader sends in
SyncGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from group_lab.assignors.embedded import decode_proposed_assignment
from group_lab.assignors.incremental import LeaderConfig, Policy
from group_lab.coordinator.classic.messages import JoinGroupResponse, SyncGroupRequest
from group_lab.coordinator.log import Log
from group_lab.coordinator.profile import KAFKA_4_3
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import Origin, Shard, Ticket
from group_lab.coordinator.topic_images import TopicsImage
from group_lab.sim.classic_membership import ClassicConfig, ClassicMembership, Phase
from group_lab.sim.embedded_protocols import IncrementalProtocol
from lab.tests.scenarios.members_in_time import MembersInTime
from lab.tests.scenarios.scene import Command
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import Subscription, decode_subscription
from spark_groups.types import TopicPartition

GROUP_ID: Final = "g"
SETTINGS: Final = BrokerSettings(
    classic_min_session_timeout_s=1.0, classic_initial_rebalance_delay_s=1.0
)


@dataclass
class _Member:
    """A member, and its requests under way."""

    name: str
    membership: ClassicMembership
    is_alive: bool = True
    tickets: list[Ticket] = field(default_factory=list)


class IncrementalGroup(MembersInTime):
    """A group whose members follow one of the proposal's designs."""

    def __init__(self) -> None:
        super().__init__(Shard(KAFKA_4_3, Settings(SETTINGS), TopicsImage(), Log(), 0.0))
        self._config = LeaderConfig(policy=Policy.IMMEDIATE)
        self._protocol_type = "consumer"
        self._members: dict[str, _Member] = {}
        self._reported: dict[str, Subscription] = {}
        """What each member reported in the round under way, by member id."""
        self.commands |= {
            "design": self._design,
            "connector": self._connector,
            "start": self._start,
            "leave": self._leave,
            "crash": self._crash,
            "owners": self._owners,
        }

    def _design(self, command: Command) -> None:
        """`design delayed delay=60`: which policy the leaders follow; times in seconds."""
        (name,) = command.words
        self._config = LeaderConfig(
            policy=Policy(name),
            scheduled_rebalance_delay_s=float(command.take("delay") or 60),
            first_delay_s=float(command.take("first-delay") or 0),
            move_interval_s=float(command.take("interval") or 10),
        )

    def _connector(self, command: Command) -> None:
        """`connector jdbc 4`: what there is to share: a connector, and so many tasks."""
        self._protocol_type = "connect"
        self.topic(command)

    def _start(self, command: Command) -> None:
        """`start A B [topics=T,U]`: members that subscribe to all topics, or to these."""
        chosen = command.take("topics")
        topics = tuple(chosen.split(",")) if chosen else tuple(self.shard.topics.by_name)
        for name in command.words:
            config = ClassicConfig(
                group_id=GROUP_ID,
                topics=topics,
                session_timeout_s=10.0,
                heartbeat_interval_s=1.0,
                rebalance_timeout_s=60.0,
            )
            embedded = IncrementalProtocol(self._config, self._protocol_type)
            self._members[name] = _Member(name, ClassicMembership(config, embedded))

    def _leave(self, command: Command) -> None:
        for name in command.words:
            self._members[name].membership.leave()

    def _crash(self, command: Command) -> None:
        """`crash A`: its session expires later."""
        for name in command.words:
            self._members[name].is_alive = False

    @property
    def owned(self) -> dict[str, frozenset[TopicPartition]]:
        """What each member owns, by its name."""
        return {
            each.name: each.membership.owned
            for each in self._members.values()
            if each.is_alive and each.membership.phase is not Phase.LEFT
        }

    @property
    def unowned(self) -> frozenset[TopicPartition]:
        """The partitions without an owner."""
        every = frozenset(
            TopicPartition(topic.name, number)
            for topic in self.shard.topics.by_name.values()
            for number in range(topic.partition_count)
        )
        return every.difference(*self.owned.values())

    def _owners(self, _: Command) -> None:
        shown = ", ".join(f"{name}({_text(each)})" for name, each in self.owned.items())
        self.lines.append(f"{shown}; unowned: {_text(self.unowned)}" if self.unowned else shown)

    # Time.

    def step(self) -> None:
        """Let each member poll, and send what it has to send."""
        for member in tuple(self._members.values()):
            if member.is_alive:
                self._step(member)

    def _step(self, member: _Member) -> None:
        membership = member.membership
        membership.poll(self.now, self.partition_counts)
        if membership.is_preparing:
            membership.prepared()
        if membership.revoking:
            membership.revoked()
        membership.events.clear()
        request = membership.next_request(self.now)
        if request is None:
            return
        if isinstance(request, SyncGroupRequest) and request.assignments:
            self._show(member.name, request)
        ticket = self.shard.submit(request, self.now, Origin(client_id=member.name))
        member.tickets.append(ticket)
        self.settle()

    def settle(self) -> None:
        """Replicate, and give members the answers that have come."""
        super().settle()
        for member in self._members.values():
            for ticket in [each for each in member.tickets if each.response is not None]:
                member.tickets.remove(ticket)
                if not member.is_alive:
                    continue
                if isinstance(ticket.response, JoinGroupResponse) and ticket.response.members:
                    self._note(ticket.response)
                response: Any = ticket.response
                member.membership.handle_response(response, self.now)

    # What it prints.

    def _note(self, response: JoinGroupResponse) -> None:
        """Keep what the members of a generation reported, as its leader learns it."""
        assert response.error_code == ErrorCode.NONE
        self._reported = {
            each.member_id: decode_subscription(each.metadata) for each in response.members
        }

    def _show(self, leader: str, request: SyncGroupRequest) -> None:
        """Print a round: what the members reported, and what the leader sends."""
        joined, sent = [], []
        for member_id in sorted(self._reported, key=_name):
            name, reported = _name(member_id), self._reported[member_id]
            topics, owned = ",".join(reported.topics), reported.owned_partitions
            joined.append(f"{name}({topics},assigned:{_text(owned)})")
            found = decode_proposed_assignment(request.assignments[member_id])
            text = f"assigned:{_text(found.assigned)},revoked:{_text(found.revoked)}"
            if self._config.policy is not Policy.IMMEDIATE:
                timeout_ms = found.scheduled_rebalance_timeout_ms
                text += f",{timeout_ms / 1000:.1f} s" if timeout_ms else ",-"
            sent.append(f"{name}({text})")
        self.lines += [
            f"{self.now:g} s: generation {request.generation_id}, leader {leader}",
            f"  members join: {', '.join(joined)}",
            f"  leader sends: {', '.join(sent)}",
        ]


def _name(member_id: str) -> str:
    return member_id.split("-", maxsplit=1)[0]


def _text(resources: Iterable[TopicPartition]) -> str:
    """Write resources as the proposal does: T1, counted from 1; the connector itself is T0."""
    return ",".join(f"{each.topic}{each.partition + 1}" for each in sorted(resources))
