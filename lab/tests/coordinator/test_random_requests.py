"""Requests at random, also such that no honest member sends: what holds at all times."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from group_lab.coordinator.profile import PROFILES, Profile
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import FIRED
from group_lab.coordinator.topic_images import TopicImage
from lab.tests.coordinator.driving import Driven, foo, group_of
from spark_groups.types import NO_PARTITIONS

NAMES = ((), ("foo",), ("foo", "bar"), ("bar",))
PATTERNS = ("fo.*", "b.*", ".*", "")


def wake(driven: Driven) -> None:
    """Let every timer fire that is due."""
    for key, timer in tuple(driven.timers.items()):
        if key in driven.timers and timer.at is not None and timer.at <= driven.now:
            del driven.timers[key]
            fire = FIRED[key.kind]
            driven.take(fire(driven.group, timer, driven.profile, driven.context))


def change_topics(driven: Driven, chance: random.Random) -> None:
    """Create, delete or grow a topic."""
    found = driven.topics.by_name.get("foo")
    if found is None:
        topic = TopicImage(uuid.UUID(int=chance.getrandbits(100)), "foo", 3)
        driven.topics = driven.topics.with_topic(topic)
    elif chance.random() < 0.5:
        driven.topics = driven.topics.without("foo")
    else:
        topic = TopicImage(found.topic_id, "foo", found.partition_count + 1)
        driven.topics = driven.topics.with_topic(topic)


def send(driven: Driven, chance: random.Random) -> None:
    """Send a heartbeat of anybody, with the right epoch more often than not."""
    member_id = chance.choice("abcdef")
    member = driven.group.members.get(member_id)
    instance_id = chance.choice((None, None, "i" + member_id, "shared"))
    if member and chance.random() < 0.9:
        instance_id = member.instance_id
    fields: dict[str, Any] = {"instance_id": instance_id}
    member_epoch = chance.choice((0, -1, -2))
    if member and chance.random() < 0.6:
        near = (member.previous_member_epoch, member.member_epoch + 1)
        member_epoch = member.member_epoch if chance.random() < 0.9 else chance.choice(near)
        fields["topic_partitions"] = chance.choice((member.assignment, foo(0), None))
    if member_epoch == 0:
        fields |= {"rebalance_timeout_ms": 5000, "topic_partitions": NO_PARTITIONS}
    if member_epoch == 0 or chance.random() < 0.1:
        fields["subscribed_topic_names"] = chance.choice(NAMES)
    if chance.random() < 0.2:
        fields["subscribed_topic_regex"] = chance.choice(PATTERNS)
    if chance.random() < 0.1:
        fields["server_assignor"] = chance.choice(("range", "uniform"))
    driven.send(member_id, member_epoch, **fields)


def check(driven: Driven, epochs: dict[str, int], chance: random.Random) -> None:
    """Nothing is had twice, no epoch goes back, and the records say all there is."""
    has = [
        key
        for member in driven.group.members.values()
        for key in (*member.assigned, *member.pending_revocation)
    ]
    assert len(has) == len(set(has))
    assert driven.group.assignment_epoch <= driven.group.group_epoch
    for name, now in (
        ("group", driven.group.group_epoch),
        ("target", driven.group.assignment_epoch),
    ):
        assert now >= epochs.get(name, 0)
        epochs[name] = now
    records = list(driven.group.records())
    chance.shuffle(records)
    assert group_of("g", *records) == driven.group


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("seed", range(15))
def test_invariants(profile: Profile, seed: int) -> None:
    chance = random.Random(seed)
    interval_s = chance.choice((0.0, 1.0))
    driven = Driven(
        profile,
        settings=Settings(BrokerSettings(assignment_interval_s=interval_s, max_size=4)),
    )
    epochs: dict[str, int] = {}
    for _ in range(80):
        driven.now += chance.choice((0.01, 0.5, 3.0, 11.0))
        wake(driven)
        if chance.random() < 0.05:
            change_topics(driven, chance)
        send(driven, chance)
        check(driven, epochs, chance)
    assert driven.group.group_epoch > 5
