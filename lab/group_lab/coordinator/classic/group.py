"""A classic group and its members, as frozen values.

Most of it is in memory only: its state, the members that wait for an answer, the pending members.
`GroupMetadataValue` in the log has the members with their assignments, generation and leader, and
is written when the leader syncs, a generation is empty or a static member returns; a loaded group
is Stable or Empty. `ConsumerGroup.classic` holds the value, beside the records of its group id.

Source: ClassicGroup (validateMember), ClassicGroupMember, ClassicGroupState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Final

from group_lab.assignors.embedded import decode_subscribed_topics
from group_lab.assignors.java_order import grown_table, hash_order, string_hash
from group_lab.coordinator import records as r
from group_lab.coordinator.classic.messages import ClassicProtocol
from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.embedded import CONSUMER_PROTOCOL_TYPE
from spark_groups.values import dataclass

NO_LEADER: Final = ""


class ClassicState(Enum):
    """The state of a classic group; the values are those of DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
    ClassicState.DEAD: frozenset(ClassicState),
}
"""The states from which a group may enter each state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group.

    Args:
        protocols: The assignors that it supports, best first.
        assignment: The leader's assignment of this generation; b"" without one.
        awaits_join: Its JoinGroup is parked.
        awaits_sync: Its SyncGroup is parked.
        is_new: It has not completed a join yet, so its session may expire while it waits.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    protocols: tuple[ClassicProtocol, ...] = ()
    assignment: bytes = b""
    awaits_join: bool = False
    awaits_sync: bool = False
    is_new: bool = False

    def metadata(self, protocol_name: str) -> bytes:
        """Return its metadata for a protocol; b"" if it does not support it."""
        return next(
            (protocol.metadata for protocol in self.protocols if protocol.name == protocol_name),
            b"",
        )

    def vote(self, candidates: Iterable[str]) -> str | None:
        """Return its best protocol among those that all members support; None without any."""
        return next(
            (protocol.name for protocol in self.protocols if protocol.name in candidates), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A classic group; a change makes another value.

    Args:
        state_since_s: When it entered its state; None if its record does not say.
        members: By member id, in the order in which they were added.
        pending_joins: Ids given to members that have not joined with them yet.
        pending_syncs: Members of this generation that have not synced yet.
        subscribed_topics: Those of all members; None if the metadata does not tell.
        new_member_added: A member came during the initial rebalance, which is extended for it.
        most_members: The maximum number of members at one time (the size of Kafka's table).
    """

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.DEAD
    state_since_s: float | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation_id: int = 0
    leader_id: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending_joins: frozenset[str] = frozenset()
    pending_syncs: frozenset[str] = frozenset()
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    most_members: int = 0

    @property
    def uses_consumer_protocol(self) -> bool:
        """True if its members are consumers, not for example workers of Kafka Connect."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def awaiting_join(self) -> int:
        """The number of members whose JoinGroup is parked."""
        return sum(member.awaits_join for member in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """True if all members wait for the answer to a JoinGroup, and none is pending."""
        return not self.pending_joins and self.awaiting_join == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def may_expire_offsets(self) -> bool:
        """True if it knows which offsets its members need; while it rebalances, it keeps all."""
        if self.state is ClassicState.STABLE:
            return self.uses_consumer_protocol and self.subscribed_topics is not None
        return self.state is ClassicState.EMPTY

    @property
    def ordered(self) -> tuple[ClassicMember, ...]:
        """The members in the order of Kafka's HashMap, which decides who leads next."""
        table = grown_table(self.most_members)
        return tuple(self.members[each] for each in hash_order(self.members, string_hash, table))

    def holder_id(self, instance_id: str) -> str | None:
        """Return the member id of an instance id."""
        holders = (member for member in self.members.values() if member.instance_id == instance_id)
        return next((holder.member_id for holder in holders), None)

    def member_error(self, member_id: str, instance_id: str | None) -> int:
        """Return the error of a member's request; an instance id decides before the member id."""
        if instance_id is not None:
            holder = self.holder_id(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Iterable[ClassicProtocol]) -> bool:
        """Return whether a joining member shares its type and a protocol with all members."""
        names = [protocol.name for protocol in protocols]
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and names)
        supported = self._supporters()
        return self.protocol_type == protocol_type and any(
            supported.get(name, 0) == len(self.members) for name in names
        )

    def selected_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support.

        It is "" if they have none in common: a lost record may give a member its former protocols
        back after another one has joined. There Kafka throws.
        """
        supported = self._supporters()
        candidates = {name for name, count in supported.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.ordered:
            name = member.vote(candidates)
            if name is not None:
                votes[name] = votes.get(name, 0) + 1
        # The first of equals in the order of a HashMap wins.
        order = hash_order(votes, string_hash, grown_table(len(votes)))
        return max(order, key=lambda name: votes[name], default="")

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether its members need the offsets of a topic; True if that is unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def moved(self, state: ClassicState, now: float) -> ClassicGroup:
        """Return the group in another state.

        Raises:
            ValueError: The state may not follow the current one.
        """
        if self.state not in PREDECESSORS[state]:
            raise ValueError(f"{state.value} may not follow {self.state.value}")
        return replace(self, state=state, previous_state=self.state, state_since_s=now)

    def with_member(self, member: ClassicMember) -> ClassicGroup:
        """Return the group with a new member, or with a changed one in its place."""
        members = {**self.members, member.member_id: member}
        return replace(
            self,
            members=members,
            protocol_type=self.protocol_type if self.members else member.protocol_type,
            leader_id=self.leader_id or member.member_id,
            pending_joins=self.pending_joins - {member.member_id},
            most_members=max(self.most_members, len(members)),
        )

    def without(self, member_id: str) -> ClassicGroup:
        """Return the group without a member or a pending one; another member may lead."""
        kept = {each: member for each, member in self.members.items() if each != member_id}
        group = replace(
            self,
            members=kept,
            pending_joins=self.pending_joins - {member_id},
            pending_syncs=self.pending_syncs - {member_id},
        )
        if self.leader_id != member_id:
            return group
        return replace(group, leader_id=next((each.member_id for each in group.ordered), None))

    def with_place_given(self, former_id: str, member_id: str) -> ClassicGroup:
        """Return the group with the place of a static member given to another member id."""
        given = replace(self.members[former_id], member_id=member_id, is_new=False)
        kept = {each: member for each, member in self.members.items() if each != former_id}
        leader_id = member_id if self.leader_id == former_id else self.leader_id
        return replace(self, members={**kept, member_id: given}, leader_id=leader_id)

    def with_topics(self) -> ClassicGroup:
        """Return the group with the topics of its members' subscriptions."""
        return replace(self, subscribed_topics=self._topics())

    def _topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in decode_subscribed_topics(member.metadata(self.protocol_name))
            )
        except ProtocolError:
            return None

    def _supporters(self) -> dict[str, int]:
        """Return how many members support each protocol.

        A member that names one twice counts once; Kafka counts it twice, and then selects none.
        """
        counts: dict[str, int] = {}
        for member in self.members.values():
            for name in {protocol.name for protocol in member.protocols}:
                counts[name] = counts.get(name, 0) + 1
        return counts


def metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> r.Record:
    """Return the record of a generation.

    Args:
        assignments: By member id; a member without one gets none.
    """
    protocol = group.protocol_name
    return r.Record(
        r.ClassicGroupMetadataKey(group.group_id),
        r.ClassicGroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=protocol,
            leader=group.leader_id,
            current_state_timestamp_s=group.state_since_s,
            members=tuple(
                r.ClassicMemberMetadata(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    session_timeout_ms=each.session_timeout_ms,
                    subscription=each.metadata(protocol) if protocol is not None else b"",
                    assignment=assignments.get(each.member_id, b""),
                )
                for each in group.ordered
            ),
        ),
    )


def loaded_group(group_id: str, value: r.ClassicGroupMetadataValue) -> ClassicGroup:
    """Return the group of a record: Stable with the selected protocol only, or Empty."""
    group = ClassicGroup(
        group_id=group_id,
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        state_since_s=value.current_state_timestamp_s,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        generation_id=value.generation,
        leader_id=value.leader,
    )
    for member in value.members:
        group = group.with_member(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=(
                    member.session_timeout_ms
                    if member.rebalance_timeout_ms == -1
                    else member.rebalance_timeout_ms
                ),
                session_timeout_ms=member.session_timeout_ms,
                protocol_type=value.protocol_type,
                protocols=(ClassicProtocol(value.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
        )
    return group.with_topics()
