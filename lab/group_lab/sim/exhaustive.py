"""Every order of events of a small group, up to a depth, like the TLA+ model of KIP-848.

Members are abstract: their partitions and one message under way. The coordinator is the model.
States are compared by value, so equal states are explored once. From each state at the full depth,
a fair schedule without faults must make the group stable.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from group_lab.coordinator import heartbeat, leaving
from group_lab.coordinator.effects import RequestContext, Timer, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup, GroupState
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.records import CurrentAssignmentValue, PartitionMetadataValue, Record
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.group.member import messages as m
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition

K = TypeVar("K")
V = TypeVar("V")

GROUP_ID: Final = "g"
TOPIC: Final = "orders"
TOPIC_ID: Final = uuid.UUID(int=1)
SETTINGS: Final = Settings(BrokerSettings(assignment_interval_s=0.0))
FAIR_ROUNDS: Final = 12
"""Heartbeats of each member that must suffice to make the group stable."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The size of the search.

    Args:
        depth: The longest sequence of events.
        faults: How many of these may be faults.
    """

    members: int = 2
    partitions: int = 2
    depth: int = 8
    faults: int = 1


class ValueMapping(dict[K, V]):
    """A mapping that never changes, and so can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, slots=True)
class AbstractMember:
    """A member's own view, and its one request or answer under way.

    Args:
        member_epoch: 0 while it is not in the group.
        owned: The assigned partitions, and those not yet revoked.
        is_expired: Whether its session has expired: by its own clock it owns nothing.
    """

    member_id: str
    member_epoch: int = 0
    assigned: Assignment = NO_PARTITIONS
    owned: Assignment = NO_PARTITIONS
    sent: m.HeartbeatRequest | None = None
    answer: m.HeartbeatResponse | None = None
    is_expired: bool = False

    @property
    def is_busy(self) -> bool:
        return self.sent is not None or self.answer is not None

    def heartbeat(self, epoch: int | None = None) -> AbstractMember:
        """Return it with a full heartbeat under way."""
        request = m.HeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=(TOPIC,),
            topic_partitions=self.owned,
        )
        return replace(self, sent=request)

    def after_answer(self) -> AbstractMember:
        """Return the member after its answer arrived."""
        answer = self.answer
        assert answer is not None
        idle = replace(self, answer=None)
        if answer.error_code:
            # The coordinator must remove the old member before the id can join again.
            again = self.member_id if self.member_epoch else f"{self.member_id}'"
            return AbstractMember(again)
        if answer.member_epoch < 0:
            return AbstractMember(self.member_id)
        assigned = self.assigned if answer.assignment is None else answer.assignment
        owned = self.owned | assigned
        return replace(
            idle,
            member_epoch=answer.member_epoch,
            assigned=assigned,
            owned=owned,
        )


@dataclass(frozen=True, slots=True)
class State:
    """The whole system at one moment, as a value.

    Args:
        compared: The version of the topics that the coordinator has applied to the group.
        topics: The version of the topics, and the number of partitions.
    """

    records: frozenset[Record]
    compared: int
    topics: tuple[int, int]
    members: tuple[AbstractMember, ...]
    faults: int = 0

    def group(self, profile: Profile) -> ConsumerGroup:
        """Return the coordinator's group."""
        group = ConsumerGroup(GROUP_ID, profile.first_group_epoch)
        for record in self.records:
            group.apply(record)
        group.topics_version = self.compared
        return group


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Args:
        broken: The events that led to a broken promise, then the promise; empty if none broke.
    """

    states: int
    depth: int
    broken: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One sentence, or the broken promise and its events, one a line."""
        if not self.broken:
            return f"{self.states:,} states visited, {self.depth} events deep: every promise kept"
        *steps, promise = self.broken
        return "\n".join([f"{promise} ({self.states:,} states visited), after:", *steps])


class Explorer:
    """Explores the states of one group, breadth first."""

    def __init__(self, profile: Profile, bounds: Bounds) -> None:
        self._profile = profile
        self._bounds = bounds

    def explore(self) -> Found:
        """Try every order of events."""
        first = State(
            frozenset(),
            -1,
            (0, self._bounds.partitions),
            tuple(AbstractMember(f"m{number}") for number in range(1, self._bounds.members + 1)),
        )
        came_from: dict[State, tuple[State, str] | None] = {first: None}
        level = [first]
        for depth in range(1, self._bounds.depth + 1):
            following: list[State] = []
            for state in level:
                for event, after in self._steps(state):
                    if after in came_from:
                        continue
                    came_from[after] = (state, event)
                    following.append(after)
                    broken = self._broken(after)
                    if not broken and depth == self._bounds.depth:
                        broken = self._unsettled(after)
                    if broken:
                        steps = _steps_to(after, came_from)
                        return Found(len(came_from), depth, (*steps, broken))
            level = following
        return Found(len(came_from), self._bounds.depth)

    # Possible events.

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for index, member in enumerate(state.members):
            name = member.member_id
            if member.sent is not None:
                yield f"{name}'s heartbeat arrives", self._arrive(state, index)
            if member.answer is not None:
                yield f"{name} is answered", _with(state, index, member.after_answer())
            if not member.is_busy:
                yield f"{name} heartbeats", _with(state, index, member.heartbeat())
                if member.member_epoch > 0:
                    leave = member.heartbeat(m.LEAVE_GROUP_MEMBER_EPOCH)
                    nothing = replace(leave, assigned=NO_PARTITIONS, owned=NO_PARTITIONS)
                    yield f"{name} leaves", _with(state, index, nothing)
            if member.owned != member.assigned:
                revoked = replace(member, owned=member.assigned)
                yield f"{name} revokes {_names(member)}", _with(state, index, revoked)
        if state.faults < self._bounds.faults:
            for event, after in self._faults(state):
                yield event, replace(after, faults=state.faults + 1)

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        for index, member in enumerate(state.members):
            if member.is_busy:
                lost = replace(member, sent=None, answer=None)
                yield f"{member.member_id}'s message is lost", _with(state, index, lost)
            if member.sent is not None:
                again = _with(self._arrive(state, index), index, member)
                yield f"{member.member_id}'s heartbeat arrives twice", self._arrive(again, index)
            for kind in (TimerKind.SESSION, TimerKind.REBALANCE):
                after = self._expire(state, index, kind)
                if after is not None:
                    yield f"{member.member_id}'s {kind.name.lower()} timeout expires", after
        silent = tuple(replace(each, sent=None, answer=None) for each in state.members)
        yield "the coordinator fails over", replace(state, members=silent, compared=-1)
        version, count = state.topics
        yield "a partition is added", replace(state, topics=(version + 1, count + 1))

    # The coordinator.

    def _context(self, state: State) -> RequestContext:
        version, count = state.topics
        image = TopicsImage.of((TopicImage(TOPIC_ID, TOPIC, count),), version)
        return RequestContext(now=0.0, topics=image, settings=SETTINGS)

    def _arrive(self, state: State, index: int) -> State:
        member, group = state.members[index], state.group(self._profile)
        assert member.sent is not None
        outcome = heartbeat.heartbeat(group, member.sent, self._profile, self._context(state))
        # A join begins a new membership.
        is_expired = member.is_expired and member.sent.member_epoch > 0
        answered = replace(member, sent=None, answer=outcome.response, is_expired=is_expired)
        return _applied(
            _with(state, index, answered), group, outcome.records, outcome.topics_version
        )

    def _expire(self, state: State, index: int, kind: TimerKind) -> State | None:
        member, group = state.members[index], state.group(self._profile)
        known = group.members.get(member.member_id)
        if known is None or (kind is TimerKind.REBALANCE and not known.pending_revocation):
            return None
        timer = Timer(TimerKey(kind, GROUP_ID, member.member_id), 0.0, known.member_epoch)
        outcome = leaving.timed_out(group, timer, self._profile, self._context(state))
        expired = _with(state, index, replace(member, is_expired=True))
        return _applied(expired, group, outcome.records, outcome.topics_version)

    # Invariants.

    def _broken(self, state: State) -> str:
        """Return the promise that a state breaks, or ""."""
        group = state.group(self._profile)
        holders: dict[TopicIdPartition, str] = {}
        for each in group.members.values():
            for key in (*each.assigned, *each.pending_revocation):
                if holders.setdefault(key, each.member_id) != each.member_id:
                    return f"for the coordinator {holders[key]} and {each.member_id} hold {key}"
            if each.member_epoch > group.assignment_epoch:
                return f"{each.member_id} is ahead of the target assignment"
        owners: dict[TopicIdPartition, str] = {}
        for member in state.members:
            for key in member.owned.partitions if not member.is_expired else ():
                if owners.setdefault(key, member.member_id) != member.member_id:
                    return f"{owners[key]} and {member.member_id} both own {key}"
        meant = [key for target in group.targets.values() for key in target.partitions.partitions]
        if len(meant) != len(set(meant)):
            return f"a partition has two target members: {sorted(meant)}"
        return _not_reconciled(group)

    def _unsettled(self, state: State) -> str:
        """Return why a fair schedule without faults does not make the group stable, or ""."""
        ids = {each.member_id for each in state.members}
        for strange in state.group(self._profile).members.keys() - ids:
            # An abandoned member id is removed when its session expires.
            group = state.group(self._profile)
            timer = Timer(TimerKey(TimerKind.SESSION, GROUP_ID, strange), 0.0)
            outcome = leaving.timed_out(group, timer, self._profile, self._context(state))
            state = _applied(state, group, outcome.records, outcome.topics_version)
        for _ in range(FAIR_ROUNDS):
            for index in range(len(state.members)):
                state = self._fair_turn(state, index)
                if broken := self._broken(state):
                    return broken
        group, count = state.group(self._profile), state.topics[1]
        held = {key for member in state.members for key in member.assigned.partitions}
        if group.state is not GroupState.STABLE or len(held) != count:
            return f"after {FAIR_ROUNDS} fair rounds the group is {group.state.value}: {held}"
        return ""

    def _fair_turn(self, state: State, index: int) -> State:
        """Deliver the member's message under way, then one more heartbeat."""
        for _ in range(2):
            member = state.members[index]
            if member.sent is None and member.answer is None:
                revoked = replace(member, owned=member.assigned)
                state = _with(state, index, revoked.heartbeat())
            if state.members[index].sent is not None:
                state = self._arrive(state, index)
            state = _with(state, index, state.members[index].after_answer())
        return state


def explore(profile: Profile, bounds: Bounds) -> Found:
    """Try every order of events of a small group."""
    return Explorer(profile, bounds).explore()


def _with(state: State, index: int, member: AbstractMember) -> State:
    members = (*state.members[:index], member, *state.members[index + 1 :])
    return replace(state, members=members)


def _applied(
    state: State, group: ConsumerGroup, records: tuple[Record, ...], compared: int | None
) -> State:
    for record in records:
        group.apply(record)
    version = state.compared if compared is None else compared
    return replace(state, records=frozenset(map(_hashable, group.records())), compared=version)


def _hashable(record: Record) -> Record:
    value = record.value
    if isinstance(value, CurrentAssignmentValue):
        assigned, revoking = ValueMapping(value.assigned), ValueMapping(value.pending_revocation)
        value = replace(value, assigned=assigned, pending_revocation=revoking)
    elif isinstance(value, PartitionMetadataValue):
        value = PartitionMetadataValue(ValueMapping(value.topics))
    return Record(record.key, value)


def _not_reconciled(group: ConsumerGroup) -> str:
    if group.state is not GroupState.STABLE:
        return ""
    for member in group.members.values():
        target = group.targets.get(member.member_id)
        if member.assigned.keys() != (target.partitions.partitions if target else frozenset()):
            return f"the group is stable, but {member.member_id} differs from its target assignment"
    return ""


def _names(member: AbstractMember) -> str:
    return ", ".join(str(key.partition) for key in member.owned - member.assigned)


def _steps_to(state: State, came_from: dict[State, tuple[State, str] | None]) -> list[str]:
    steps = []
    before = came_from[state]
    while before is not None:
        state, event = before
        steps.append(event)
        before = came_from[state]
    return steps[::-1]
