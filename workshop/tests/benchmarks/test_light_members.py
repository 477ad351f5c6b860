"""Light members share a topic on a real broker, and let it go when they leave."""

from __future__ import annotations

import time

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.messages import HeartbeatResponse
from spark_groups.types import Assignment, TopicIdPartition
from tests.group.ledger.ledger_setup import parts
from workshop.benchmarks.heartbeats import coordinator_of
from workshop.benchmarks.light_members import LightMember, LightMembers
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

PARTITIONS = 12


def answer(member_epoch: int, assignment: Assignment | None = None) -> HeartbeatResponse:
    return HeartbeatResponse(
        member_epoch=member_epoch, heartbeat_interval_ms=5_000, assignment=assignment
    )


def beat(light: LightMember, at: float, response: HeartbeatResponse | None) -> None:
    """Send the heartbeat that is due, and process its answer 0.1 s later."""
    assert light.poll(at) is not None
    light.answered(response, at + 0.1)


def test_only_heartbeats_at_the_interval_are_late_or_not(group_id: str) -> None:
    light = LightMember(group_id, "topic")
    light.member.join(100.0)
    beat(light, 100.0, answer(1, parts(0, 1)))
    # It acknowledges at once, and 0.4 s late for that: neither counts.
    beat(light, 100.5, answer(1))
    assert light.late_s == []
    assert light.poll(105.4) is None
    beat(light, 105.5, answer(1))
    beat(light, 111.0, answer(1, parts(0)))
    beat(light, 111.2, answer(1))
    assert light.late_s == [(105.5, 0.0), (111.0, 0.5)]
    # Without an answer it is sent again, before the next one would be due.
    beat(light, 116.2, None)
    beat(light, 118.0, answer(1))
    assert light.late_s[2:] == [(118.0, pytest.approx(1.8))]


def test_member_knows_when_an_answer_changed_it(group_id: str) -> None:
    light = LightMember(group_id, "topic")
    light.member.join(100.0)
    assert light.changed_at is None
    beat(light, 100.0, answer(1, parts(0)))
    assert light.changed_at == 100.1
    beat(light, 100.2, answer(1))
    assert light.is_stable
    assert light.changed_at == pytest.approx(100.3)
    beat(light, 105.2, answer(1))
    assert light.changed_at == pytest.approx(100.3)
    beat(light, 110.2, answer(2))
    assert light.changed_at == pytest.approx(110.3)


def owned(light: LightMembers) -> list[TopicIdPartition]:
    """Return what all members own; a partition with two owners appears twice."""
    return sorted(key for each in light.all for key in each.member.owned)


@pytest.mark.broker
def test_members_over_two_connections_share_a_topic(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    with LightMembers(coordinator_of(kafka, group_id), connections=2) as light:
        began_at = time.monotonic()
        light.join([group_id] * 5, topic_name)
        wait_until(lambda: light.are_stable() and len(owned(light)) == PARTITIONS)
        assert len(set(owned(light))) == PARTITIONS
        before = light.epoch()
        light.leave(light.all[:3])
        wait_until(lambda: light.are_stable(before) and len(owned(light)) == PARTITIONS)
        assert len(light.all) == 2
        assert light.commit(0) == PARTITIONS
        changed_at = light.changed_at()
        assert began_at < changed_at < time.monotonic()
        wait_until(lambda: list(light.late_s(changed_at, time.monotonic())))
        assert light.changed_at() == changed_at
        light.leave(list(light.all))
