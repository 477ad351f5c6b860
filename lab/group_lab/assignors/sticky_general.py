"""The sticky assignment of members that subscribe to different topics.

Members keep what they still subscribe to, free partitions go to the least loaded subscriber, and
then partitions move to the least loaded subscriber until no single move improves the balance.

Source: AbstractStickyAssignor.GeneralAssignmentBuilder (org.apache.kafka.clients.consumer).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from group_lab.assignors.java_order import grown_table, hash_order, string_hash
from spark_groups.group.member.embedded import NO_GENERATION
from spark_groups.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says that it owned.

    Args:
        generation_id: The generation in which it did; None if it does not say.
        reported_generation: The generation of its subscription.
    """

    partitions: Iterable[TopicPartition] = ()
    generation_id: int | None = None
    reported_generation: int = NO_GENERATION

    @property
    def generation(self) -> int:
        """The generation, NO_GENERATION if it does not say."""
        return NO_GENERATION if self.generation_id is None else self.generation_id


@dataclass(frozen=True, slots=True)
class Claims:
    """A group whose partitions have one owner at most.

    Args:
        ordered: Member ids in the order in which Java's client regards them.
        subscribed: The topics of each member.
        counts: Partition counts of the subscribed topics that exist.
        claims: What each member says.
        owned: What each member owned.
        contested: Partitions that two members claim for one generation.
    """

    ordered: Sequence[str]
    subscribed: Mapping[str, frozenset[str]]
    counts: Mapping[str, int]
    claims: Mapping[str, Claim]
    owned: Mapping[str, set[TopicPartition]]
    contested: set[TopicPartition]


def general_assignment(group: Claims) -> dict[str, set[TopicPartition]]:
    """Return the partitions of every member."""
    return _Builder(group).build()


@dataclass(slots=True)
class _MovedSet:
    """Partitions of one topic that moved between two members, in the order of a HashSet.

    Args:
        most: Maximum number of partitions so far; a table never shrinks.
    """

    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    most: int = 0

    def add(self, key: TopicPartition) -> None:
        self.partitions[key] = None
        self.most = max(self.most, len(self.partitions))

    def first(self) -> TopicPartition:
        return hash_order(self.partitions, _partition_hash, grown_table(self.most))[0]


def _partition_hash(key: TopicPartition) -> int:
    """Return the `hashCode` of Kafka's TopicPartition as unsigned 32 bits."""
    return (31 * (31 + key.partition) + string_hash(key.topic)) & 0xFFFF_FFFF


class _Movements:
    """What moved so far: rather than two moves in opposite directions, one is taken back."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], _MovedSet] = {}
        """By topic, giver and taker."""

    def instead_of(self, key: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move instead: one of the topic that moved the other way."""
        source, _ = self._pair_of.get(key, (giver, taker))
        opposite = self._moved.get((key.topic, taker, source))
        return opposite.first() if opposite else key

    def add(self, key: TopicPartition, giver: str, taker: str) -> None:
        """Record a move."""
        source = giver
        earlier = self._pair_of.pop(key, None)
        if earlier:
            source = earlier[0]
            movement = (key.topic, *earlier)
            moved = self._moved[movement]
            del moved.partitions[key]
            if not moved.partitions:
                del self._moved[movement]
            if source == taker:
                return
        self._pair_of[key] = (source, taker)
        self._moved.setdefault((key.topic, source, taker), _MovedSet()).add(key)


Load = tuple[int, str]
"""The partition count of a member, and its id."""


class _Builder:
    """One run."""

    def __init__(self, group: Claims) -> None:
        self.group = group
        self.subscribers: dict[str, list[str]] = {each: [] for each in group.counts}
        for member_id in group.ordered:
            for topic in group.subscribed[member_id] & group.counts.keys():
                self.subscribers[topic].append(member_id)
        self.owned = {each: set(group.owned[each]) for each in group.ordered}
        self.owner_of = {key: each for each, own in self.owned.items() for key in own}
        self.movements = _Movements()
        self.loads: dict[frozenset[str], list[Load]] = {}
        """Members that subscribe alike, the least loaded first."""
        self.loads_of: dict[str, list[list[Load]]] = {}
        """The same of the subscribers of each topic."""
        self.is_balanced: bool | None = None
        """None after a move, until it is computed again."""

    def build(self) -> dict[str, set[TopicPartition]]:
        revokes = self.drop_unsubscribed()
        self.sort_by_load()
        is_first = not any(self.owned.values())
        topics = sorted(self.subscribers, key=lambda each: (len(self.subscribers[each]), each))
        free: list[TopicPartition] = []
        shared: list[TopicPartition] = []
        for topic in topics:
            keys = [TopicPartition(topic, each) for each in range(self.group.counts[topic])]
            unowned = [key for key in keys if key not in self.owner_of]
            for key in unowned:
                self.add(key, self.least_loaded(topic))
            if len(self.subscribers[topic]) > 1:
                free += unowned
                shared += keys
        self.leave_out_fixed()
        before = {each: set(own) for each, own in self.owned.items()}
        spread = self.spread()
        former = self.former_owners()
        if not revokes:
            self.rebalance(free, former)
        is_changed = self.rebalance(shared, former)
        if is_changed and not is_first and self.spread() >= spread:
            return before
        return self.owned

    def sort_by_load(self) -> None:
        for member_id, own in self.owned.items():
            alike = self.loads.setdefault(self.group.subscribed[member_id], [])
            alike.append((len(own), member_id))
        for subscribed, alike in self.loads.items():
            alike.sort()
            for topic in subscribed & self.group.counts.keys():
                self.loads_of.setdefault(topic, []).append(alike)

    def drop_unsubscribed(self) -> bool:
        """Take partitions from members that no longer subscribe to them; return whether any did."""
        is_changed = False
        for member_id, own in self.owned.items():
            gone = {key for key in own if key.topic not in self.group.subscribed[member_id]}
            own.difference_update(gone)
            is_changed |= bool(gone)
            for key in gone:
                del self.owner_of[key]
        return is_changed

    def least_loaded(self, topic: str) -> str:
        return min(alike[0] for alike in self.loads_of[topic])[1]

    def add(self, key: TopicPartition, member_id: str) -> None:
        self.change(member_id, self.owned[member_id].add, key)
        self.owner_of[key] = member_id

    def change(
        self, member_id: str, act: Callable[[TopicPartition], None], key: TopicPartition
    ) -> None:
        """Add a partition to a member, or remove it, and sort the member by its new load."""
        alike, own = self.loads[self.group.subscribed[member_id]], self.owned[member_id]
        del alike[bisect_left(alike, (len(own), member_id))]
        act(key)
        insort(alike, (len(own), member_id))

    def leave_out_fixed(self) -> None:
        """Leave out the members that share no topic: they have all that they can have."""
        self.loads = {
            subscribed: alike
            for subscribed, alike in self.loads.items()
            if any(len(self.subscribers.get(topic, ())) > 1 for topic in subscribed)
        }

    def spread(self) -> int:
        """Return the sum of the differences of all pairs of loads."""
        loads = sorted(load for alike in self.loads.values() for load, _ in alike)
        most = len(loads) - 1
        return sum((2 * position - most) * load for position, load in enumerate(loads))

    def former_owners(self) -> dict[TopicPartition, str]:
        """Return who owned partitions before the newest generation."""
        claims = self.group.claims
        newest = max(each.generation for each in claims.values())
        former: dict[TopicPartition, tuple[int, str]] = {}
        for member_id in self.group.ordered:
            claim = claims[member_id]
            if claim.generation >= newest:
                continue
            for key in claim.partitions:
                if key not in former or former[key][0] < claim.generation:
                    former[key] = (claim.generation, member_id)
        return {
            key: member_id
            for key, (_, member_id) in former.items()
            if key.topic in self.group.subscribed[member_id]
        }

    def rebalance(
        self, partitions: Sequence[TopicPartition], former: Mapping[TopicPartition, str]
    ) -> bool:
        """Move partitions until no single move improves the balance; return whether any moved."""
        is_changed, is_moving = False, True
        while is_moving:
            is_moving = False
            for key in partitions:
                if self.balanced():
                    return is_changed
                load = len(self.owned[self.owner_of[key]])
                taker = former.get(key)
                if taker is None or load <= len(self.owned[taker]) + 1:
                    taker = self.least_loaded(key.topic)
                if load > len(self.owned[taker]) + 1:
                    self.move(key, taker)
                    is_changed = is_moving = True
        return is_changed

    def balanced(self) -> bool:
        """Return whether no partition can move to a member with two partitions less."""
        if self.is_balanced is None:
            least = min(alike[0][0] for alike in self.loads.values())
            most = max(alike[-1][0] for alike in self.loads.values())
            self.is_balanced = least >= most - 1 or not any(
                self.can_improve(topic)
                for topic, subscribers in self.subscribers.items()
                if len(subscribers) > 1
            )
        return self.is_balanced

    def can_improve(self, topic: str) -> bool:
        most = max(
            len(self.owned[self.owner_of[TopicPartition(topic, each)]])
            for each in range(self.group.counts[topic])
        )
        return most > len(self.owned[self.least_loaded(topic)]) + 1

    def move(self, wanted: TopicPartition, taker: str) -> None:
        key = self.movements.instead_of(wanted, self.owner_of[wanted], taker)
        giver = self.owner_of[key]
        self.movements.add(key, giver, taker)
        self.change(giver, self.owned[giver].remove, key)
        self.add(key, taker)
        self.is_balanced = None
