"""Light members share a topic on a real broker, and let it go when they leave."""

from __future__ import annotations

import time

import pytest

from benchmarks.heartbeats import coordinator_of
from benchmarks.light_members import LightMembers
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from tests.brokers import create_topic
from tests.waiting import wait_until

PARTITIONS = 12

pytestmark = pytest.mark.broker


def owned(light: LightMembers) -> list[TopicIdPartition]:
    """Return what all members own; a partition with two owners appears twice."""
    return sorted(key for each in light.all for key in each.member.owned)


def test_members_over_two_connections_share_a_topic(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    with LightMembers(coordinator_of(kafka, group_id), connections=2) as light:
        began_at = time.monotonic()
        light.join([group_id] * 5, topic_name)
        wait_until(lambda: light.are_stable() and len(owned(light)) == PARTITIONS, 60)
        assert len(set(owned(light))) == PARTITIONS
        before = light.epoch()
        light.leave(light.all[:3])
        wait_until(lambda: light.are_stable(before) and len(owned(light)) == PARTITIONS, 60)
        assert len(light.all) == 2
        assert light.commit(0) == PARTITIONS
        late_s = list(light.late_s(began_at, time.monotonic()))
        assert late_s
        assert min(late_s) >= 0
        light.leave(list(light.all))
