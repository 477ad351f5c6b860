"""The sticky assignors of the classic protocol: balanced, and as few moves as possible.

Members report what they had and in which generation: a sticky member in its user data, for it
revokes everything before it joins; a cooperative-sticky member in its owned partitions. If two
claim a partition, the later generation wins; of one generation, neither.

If all members subscribe to the same topics, each keeps its partitions up to its quota, and the
others are dealt to those that have too few; otherwise see `sticky_general`. Results are those of
Kafka's Java client for members in the order of JoinGroup, with three exceptions where it assigns
what does not exist or is not subscribed: partitions beyond the end of a topic that was created
again, members without topics beside others, and partitions that return to an earlier owner which
no longer subscribes to them.

Source: AbstractStickyAssignor, StickyAssignor, CooperativeStickyAssignor
(org.apache.kafka.clients.consumer).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from group_lab.assignors.classic import ClassicMember, RebalanceProtocol, assignments
from group_lab.assignors.embedded import decode_owned, encode_owned
from group_lab.assignors.java_order import grown_table, hash_order, string_hash
from group_lab.assignors.sticky_general import Claim, Claims, general_assignment
from spark_groups.errors import ProtocolError
from spark_groups.group.member.embedded import NO_GENERATION, EmbeddedAssignment
from spark_groups.types import TopicPartition


@dataclass(frozen=True, slots=True)
class StickyAssignor:
    """Keeps partitions where they were, with the eager rebalance protocol."""

    @property
    def name(self) -> str:
        return "sticky"

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.EAGER,)

    def user_data(
        self, assigned: Iterable[TopicPartition] | None, generation_id: int
    ) -> bytes | None:
        """Return the last assignment and its generation, if there was one."""
        return None if assigned is None else encode_owned(assigned, generation_id)

    def assign(
        self, members: Mapping[str, ClassicMember], partition_counts: Mapping[str, int]
    ) -> dict[str, EmbeddedAssignment]:
        """Return the assignment of every member."""
        claims = {each: _claim_of_user_data(member) for each, member in members.items()}
        return assignments(sticky_assignment(_subscribed(members), partition_counts, claims)[0])


@dataclass(frozen=True, slots=True)
class CooperativeStickyAssignor:
    """The sticky assignor in two rebalances: a partition that moves has no owner in between.

    With the eager rebalance protocol it works too; members then own nothing when they join, so that
    nothing sticks.
    """

    @property
    def name(self) -> str:
        return "cooperative-sticky"

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(
        self, _assigned: Iterable[TopicPartition] | None, generation_id: int
    ) -> bytes | None:
        """Return the generation, for leaders that read no version 2 of the subscription."""
        return struct.pack(">i", generation_id)

    def assign(
        self, members: Mapping[str, ClassicMember], partition_counts: Mapping[str, int]
    ) -> dict[str, EmbeddedAssignment]:
        """Return the assignment of every member, without what another one has to revoke first."""
        claims = {each: _claim_of_fields(member) for each, member in members.items()}
        assigned, moving = sticky_assignment(_subscribed(members), partition_counts, claims)
        if moving is None:
            moving = _moving(members, assigned)
        kept = {
            member_id: [each for each in own if each not in moving]
            for member_id, own in assigned.items()
        }
        return assignments(kept)


def _claim_of_user_data(member: ClassicMember) -> Claim:
    reported = member.subscription.generation_id
    user_data = member.subscription.user_data
    if not user_data:
        return Claim(reported_generation=reported)
    try:
        partitions, generation_id = decode_owned(user_data)
    except ProtocolError:
        return Claim(generation_id=NO_GENERATION, reported_generation=reported)
    return Claim(partitions, generation_id, reported)


def _claim_of_fields(member: ClassicMember) -> Claim:
    subscription = member.subscription
    owned, reported = subscription.owned_partitions, subscription.generation_id
    if reported >= 0:
        return Claim(owned, reported, reported)
    user_data = subscription.user_data
    if user_data is None:
        return Claim(owned)
    is_read = len(user_data) >= struct.calcsize(">i")
    return Claim(owned, struct.unpack_from(">i", user_data)[0] if is_read else NO_GENERATION)


def _subscribed(members: Mapping[str, ClassicMember]) -> dict[str, frozenset[str]]:
    return {member_id: frozenset(known.subscription.topics) for member_id, known in members.items()}


def sticky_assignment(
    subscribed: Mapping[str, frozenset[str]],
    partition_counts: Mapping[str, int],
    claims: Mapping[str, Claim],
) -> tuple[Mapping[str, Iterable[TopicPartition]], set[TopicPartition] | None]:
    """Return the partitions of every member, and those that move; None if that is unknown.

    Args:
        subscribed: The topics of each member, in the order of JoinGroup.
        partition_counts: By topic; other topics are left out.
        claims: What each member says that it owned.
    """
    if not subscribed:
        return {}, set()
    counts = {
        topic: count
        for topic in frozenset[str]().union(*subscribed.values())
        if (count := partition_counts.get(topic, 0))
    }
    ordered = hash_order(subscribed, string_hash, grown_table(len(subscribed)))
    group = _with_owners(ordered, subscribed, counts, claims)
    if len(set(subscribed.values())) == 1:
        return _constrained(group)
    return general_assignment(group), None


def _with_owners(
    ordered: Sequence[str],
    subscribed: Mapping[str, frozenset[str]],
    counts: Mapping[str, int],
    claims: Mapping[str, Claim],
) -> Claims:
    """Return the claims of all members, where each partition has at most one owner."""
    owned: dict[str, set[TopicPartition]] = {each: set() for each in ordered}
    contested: set[TopicPartition] = set()
    owner_of: dict[TopicPartition, str] = {}
    for member_id in ordered:
        claim = claims[member_id]
        for key in claim.partitions:
            if not 0 <= key.partition < counts.get(key.topic, 0):
                continue
            other = owner_of.setdefault(key, member_id)
            if other == member_id:
                owned[member_id].add(key)
                continue
            difference = claim.generation - claims[other].reported_generation
            if difference >= 0:
                owned[other].discard(key)
                owner_of[key] = member_id
            if difference > 0:
                owned[member_id].add(key)
            elif not difference:
                contested.add(key)
    return Claims(ordered, subscribed, counts, claims, owned, contested)


class _Deal:
    """Deals partitions to members that have too few, one to each in turn.

    Args:
        quota: What every member gets; some get one more.
        poor: Members with less than the quota.
        enough: Members that may get one more.
    """

    def __init__(self, quota: int, poor: Sequence[str], enough: Sequence[str]) -> None:
        self._quota = quota
        self._round = deque(sorted(poor))
        self._enough = deque(sorted(enough))

    def taker(self, loads: Mapping[str, Sequence[TopicPartition]]) -> str:
        """Return the member that gets the next partition."""
        if not self._round:
            return self._enough.popleft()
        member_id = self._round.popleft()
        if len(loads[member_id]) + 1 == self._quota:
            self._enough.append(member_id)
        else:
            self._round.append(member_id)
        return member_id


def _constrained(
    group: Claims,
) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition]]:
    """Assign where all members subscribe to the same topics; return also what moves."""
    quota, extras = divmod(sum(group.counts.values()), len(group.ordered))
    assigned: dict[str, list[TopicPartition]] = {}
    poor: list[str] = []
    enough: list[str] = []
    revoked: dict[TopicPartition, str] = {}
    for member_id in group.ordered:
        own = group.owned[member_id] - group.contested
        had = sorted(own, key=lambda key: (key.partition, key.topic))
        has_extra = extras > 0 and len(had) > quota
        room = quota + has_extra
        assigned[member_id] = had[:room]
        revoked |= dict.fromkeys(had[room:], member_id)
        if len(had) < quota:
            poor.append(member_id)
        elif has_extra:
            extras -= 1
            if not extras:
                enough.clear()
        elif extras:
            enough.append(member_id)
    kept = {key for own in assigned.values() for key in own}
    moving: set[TopicPartition] = set()
    deal = _Deal(quota, poor, enough)
    for topic in sorted(group.counts):
        for partition in range(group.counts[topic]):
            key = TopicPartition(topic, partition)
            if key in kept:
                continue
            taker = deal.taker(assigned)
            assigned[taker].append(key)
            if revoked.get(key, taker) != taker or key in group.contested:
                moving.add(key)
    return assigned, moving


def _moving(
    members: Mapping[str, ClassicMember], assigned: Mapping[str, Iterable[TopicPartition]]
) -> set[TopicPartition]:
    """Return the partitions that one member gets and another one has to revoke."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, partitions in assigned.items():
        had, has = members[member_id].subscription.owned_partitions, frozenset(partitions)
        added |= has - had
        revoked |= had - has
    return added & revoked
