"""E. Koutanov, Effective Kafka, chapter 15, "Upgrading assignors and rebalance protocols".

Three consumers with `range` are to use `cooperative-sticky`: two rolling restarts, not one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from group_lab.assignors.classic import (
    ClassicAssignor,
    ClassicMember,
    ClassicRangeAssignor,
    RebalanceProtocol,
    rebalance_protocol,
)
from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.assignors.sticky import CooperativeStickyAssignor
from group_lab.coordinator.classic.messages import ClassicProtocol
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeavingMember
from group_lab.coordinator.shard import Ticket
from lab.tests.coordinator.classic.driving import DrivenShard
from spark_groups.group.member.embedded import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from spark_groups.types import TopicPartition

RANGE = ClassicRangeAssignor()
COOPERATIVE = CooperativeStickyAssignor()
COUNTS = {"foo": 6}
ALL = {TopicPartition("foo", each) for each in range(6)}
ROUNDS = 4
"""How many rebalances a group may take to settle."""


@dataclass
class Consumer:
    """A consumer with its assignors, best first, and what it owns."""

    assignors: Sequence[ClassicAssignor]
    member_id: str = ""
    generation_id: int = NO_GENERATION
    owned: frozenset[TopicPartition] = frozenset()

    def protocols(self) -> tuple[ClassicProtocol, ...]:
        """Return what it joins with; an eager one has revoked everything before."""
        if rebalance_protocol(self.assignors) is RebalanceProtocol.EAGER:
            self.owned = frozenset()
        return tuple(
            ClassicProtocol(
                each.name,
                encode_subscription(
                    Subscription(
                        topics=("foo",),
                        user_data=each.user_data(self.owned or None, self.generation_id),
                        owned_partitions=self.owned,
                        generation_id=self.generation_id,
                    )
                ),
            )
            for each in self.assignors
        )


@dataclass
class Group:
    """Consumers of one classic group."""

    consumers: list[Consumer]
    driven: DrivenShard = field(default_factory=DrivenShard)

    def join(self, consumer: Consumer) -> Ticket:
        return self.driven.join(consumer.member_id, protocols=consumer.protocols())

    def settle(self) -> str:
        """Rebalance until no member has to revoke more; return the selected assignor."""
        for _ in range(ROUNDS):
            if not self.rebalance():
                return str(self.driven.group.protocol_name)
        raise AssertionError("the group does not settle")

    def rebalance(self) -> bool:
        """Play one rebalance; return whether a member has to revoke and join again."""
        # A newcomer joins first: the rebalance would end without it.
        self.consumers.sort(key=lambda each: bool(each.member_id))
        tickets = [self.join(each) for each in self.consumers]
        self.driven.wait_for(*tickets)
        responses: list[Any] = [each.response for each in tickets]
        for consumer, response in zip(self.consumers, responses, strict=True):
            consumer.member_id = response.member_id
        (leading,) = [each for each in responses if each.member_id == each.leader]
        assignments = self.led(leading)
        by_id = {each.member_id: each for each in self.consumers}
        followers = [each for each in by_id if each != leading.leader]
        syncs = {each: self.driven.sync(each) for each in followers}
        syncs[leading.leader] = self.driven.sync(leading.leader, assignments)
        had = {key: each for each, consumer in by_id.items() for key in consumer.owned}
        revokes = False
        for member_id, ticket in syncs.items():
            answer: Any = ticket.response
            assigned = decode_assignment(answer.assignment).partitions
            assert all(had.get(key, member_id) == member_id for key in assigned)
            consumer = by_id[member_id]
            revokes |= not consumer.owned <= assigned
            consumer.owned, consumer.generation_id = assigned, leading.generation_id
        return revokes

    def led(self, response: Any) -> dict[str, bytes]:
        """Return what the leader assigns."""
        (leader,) = [each for each in self.consumers if each.member_id == response.leader]
        (assignor,) = [each for each in leader.assignors if each.name == response.protocol_name]
        members = {
            each.member_id: ClassicMember(
                decode_subscription(each.metadata), each.group_instance_id
            )
            for each in response.members
        }
        found = assignor.assign(members, COUNTS)
        return {each: encode_assignment(own) for each, own in found.items()}

    def restart(self, *assignors: ClassicAssignor) -> None:
        """Stop the consumer that has run longest and start it with other assignors."""
        self.driven.leave(LeavingMember(self.consumers.pop().member_id))
        self.consumers.insert(0, Consumer(assignors))

    def check_assigned(self) -> None:
        """Every partition has one owner."""
        owned = [key for each in self.consumers for key in each.owned]
        assert sorted(owned) == sorted(ALL)


def with_range() -> Group:
    group = Group([Consumer([RANGE]) for _ in range(3)])
    assert group.settle() == "range"
    group.check_assigned()
    return group


def test_two_rolling_restarts_change_the_assignor() -> None:
    group = with_range()
    selected = []
    for _ in range(3):
        group.restart(RANGE, COOPERATIVE)
        selected.append(group.settle())
        group.check_assigned()
    for _ in range(3):
        group.restart(COOPERATIVE)
        selected.append(group.settle())
        group.check_assigned()
    assert selected == ["range"] * 3 + ["cooperative-sticky"] * 3
    owned = [each.owned for each in group.consumers]
    assert group.settle() == "cooperative-sticky"
    assert [each.owned for each in group.consumers] == owned


def test_the_order_of_the_assignors_in_between_does_not_matter() -> None:
    group = with_range()
    for _ in range(3):
        group.restart(COOPERATIVE, RANGE)
        group.settle()
        group.check_assigned()
    for _ in range(3):
        group.restart(COOPERATIVE)
        assert group.settle() == "cooperative-sticky"
        group.check_assigned()


def test_one_restart_fails_with_inconsistent_group_protocol() -> None:
    group = with_range()
    group.restart(COOPERATIVE)
    refused: Any = group.join(group.consumers[0]).response
    assert refused.error_code == CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL
    del group.consumers[0]
    assert group.settle() == "range"
    group.check_assigned()


def test_eager_members_beside_cooperative_ones_own_nothing_when_they_join() -> None:
    """In the second restart; the cooperative member keeps its partitions meanwhile."""
    group = with_range()
    for _ in range(3):
        group.restart(RANGE, COOPERATIVE)
    group.settle()
    group.restart(COOPERATIVE)
    group.settle()
    kept = group.consumers[0].owned
    assert len(kept) == 2
    group.settle()
    assert group.consumers[0].owned == kept
    group.check_assigned()
