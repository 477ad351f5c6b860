"""The assignors of the classic protocol, against those of Kafka's own Java client."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from group_lab.assignors.classic import (
    ClassicAssignor,
    ClassicMember,
    ClassicRangeAssignor,
    RoundRobinAssignor,
)
from group_lab.assignors.embedded import encode_subscription
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from spark_groups.group.member.embedded import NO_GENERATION, Subscription
from spark_groups.types import TopicPartition

SEEDS = range(60)
REBALANCES = 4
TOPICS = ("orders", "audit", "clicks", "t")
JAVA_NAMES: dict[str, type[ClassicAssignor]] = {
    "RangeAssignor": ClassicRangeAssignor,
    "RoundRobinAssignor": RoundRobinAssignor,
    "StickyAssignor": StickyAssignor,
    "CooperativeStickyAssignor": CooperativeStickyAssignor,
}


def assigned_by_java(
    java: Any, name: str, members: Mapping[str, ClassicMember], counts: Mapping[str, int]
) -> dict[str, frozenset[TopicPartition]]:
    """Return what Kafka's class assigns to members that joined in this order."""
    kafka = java.org.apache.kafka
    subscriptions = java.java.util.HashMap()
    for member_id, member in members.items():
        encoded = java.java.nio.ByteBuffer.wrap(encode_subscription(member.subscription))
        subscription = kafka.clients.consumer.internals.ConsumerProtocol.deserializeSubscription(
            encoded
        )
        subscription.setGroupInstanceId(
            java.java.util.Optional.ofNullable(member.group_instance_id)
        )
        subscriptions.put(member_id, subscription)
    partitions = java.java.util.HashMap()
    wanted = {each for member in members.values() for each in member.subscription.topics}
    for topic, count in counts.items():
        if count and topic in wanted:
            partitions.put(topic, count)
    found = getattr(kafka.clients.consumer, name)().assign(partitions, subscriptions)
    assigned = {}
    for member_id in members:
        listed = (each.rsplit("-", 1) for each in found.get(member_id).toString()[1:-1].split(", "))
        assigned[member_id] = frozenset(
            TopicPartition(each[0], int(each[1])) for each in listed if len(each) == 2
        )
    return assigned


class History:
    """A group whose members come, go and come back, and whose topics grow.

    Args:
        chance: Decides everything.
        assignor: Computes the assignments.
    """

    def __init__(self, chance: Random, assignor: ClassicAssignor) -> None:
        self.chance = chance
        self.assignor = assignor
        self.is_uniform = chance.random() < 0.5
        self.common = self.some_topics()
        self.counts = {each: chance.randint(0, 12) for each in TOPICS}
        self.known = [f"consumer-{each}-{chance.getrandbits(40):010x}" for each in range(10)]
        self.topics: dict[str, tuple[str, ...]] = {}
        self.owned: dict[str, frozenset[TopicPartition]] = {}
        self.generations: dict[str, int] = {}

    def some_topics(self) -> tuple[str, ...]:
        return tuple(self.chance.sample(TOPICS, self.chance.randint(1, len(TOPICS))))

    def joined(self, generation_id: int) -> dict[str, ClassicMember]:
        """Return the members of the next generation, in the order of JoinGroup."""
        chance = self.chance
        for topic in chance.sample(TOPICS, 1):
            self.counts[topic] += chance.randint(0, 2)
        joined = chance.sample(self.known, chance.randint(1, 8))
        return {each: self.member(each, generation_id) for each in joined}

    def member(self, member_id: str, generation_id: int) -> ClassicMember:
        chance = self.chance
        if member_id not in self.topics or chance.random() < 0.2:
            self.topics[member_id] = self.common if self.is_uniform else self.some_topics()
        topics = self.topics[member_id]
        owned = self.owned.get(member_id)
        own_generation = self.generations.get(member_id, NO_GENERATION)
        version = chance.choice((0, 1, 2, 3, 3, 3))
        if owned and (own_generation < generation_id - 1 or version < 2):
            # Java's client may return the others to a member that no longer subscribes to them.
            owned = frozenset(key for key in owned if key.topic in topics)
        if owned is not None and chance.random() < 0.1:
            owned |= {TopicPartition(topics[0], 0)}
        subscription = Subscription(
            topics=topics,
            user_data=self.assignor.user_data(owned, own_generation),
            owned_partitions=owned if owned and version >= 1 else frozenset(),
            generation_id=own_generation if version >= 2 else NO_GENERATION,
            version=version,
        )
        return ClassicMember(subscription, f"i-{member_id}" if chance.random() < 0.3 else None)


@pytest.mark.parametrize("name", JAVA_NAMES)
def test_the_results_are_those_of_kafkas_class(java: Any, name: str) -> None:
    for seed in SEEDS:
        assignor = JAVA_NAMES[name]()
        history = History(Random(seed), assignor)
        for generation_id in range(1, REBALANCES + 1):
            members = history.joined(generation_id)
            found = assignor.assign(members, history.counts)
            expected = assigned_by_java(java, name, members, history.counts)
            assert {each: own.partitions for each, own in found.items()} == expected, (
                f"seed {seed}, generation {generation_id}"
            )
            history.owned |= expected
            history.generations |= dict.fromkeys(members, generation_id)
