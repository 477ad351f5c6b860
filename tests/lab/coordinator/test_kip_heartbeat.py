"""Answers of KIP-848 name what is pending, as its case study "Basic" has it."""

from __future__ import annotations

from typing import Any

from spark_groups.lab.coordinator import messages as m
from spark_groups.lab.coordinator.log import Log
from spark_groups.lab.coordinator.profile import KAFKA_4_3, KIP_848
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.shard import Shard
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

FOO = TopicImage(TopicId(int=1), "foo", 2)
TOPICS = TopicsImage.of([FOO])


def foo(*partitions: int) -> Assignment:
    return Assignment.of({FOO.topic_id: partitions})


class Members:
    """Members of one group; each keeps the epoch it was told."""

    def __init__(self) -> None:
        self.shard = Shard(KIP_848, Settings(), TOPICS, Log(), 0.0)
        self.epochs: dict[str, int] = {}
        self.now = 0.0

    def join(self, member_id: str) -> m.KipHeartbeatResponse:
        return self.beat(
            member_id,
            NO_PARTITIONS,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("foo",),
        )

    def beat(
        self, member_id: str, owned: Assignment | None = None, **fields: Any
    ) -> m.KipHeartbeatResponse:
        self.now += 1.0
        self.shard.wake(self.now)
        request = HeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.epochs.get(member_id, 0),
            topic_partitions=owned,
            **fields,
        )
        response = self.shard.ask(request, self.now)
        assert isinstance(response, m.KipHeartbeatResponse), response
        self.epochs[member_id] = response.member_epoch
        return response


def both(answer: m.KipHeartbeatResponse) -> tuple[Assignment | None, Assignment]:
    return answer.assignment, answer.pending_topic_partitions


def test_what_is_not_released_is_pending_until_it_is() -> None:
    group = Members()
    assert both(group.join("a")) == (foo(0, 1), NO_PARTITIONS)
    joined = group.join("b")
    kept = 0 if joined.pending_topic_partitions == foo(1) else 1
    assert both(joined) == (NO_PARTITIONS, foo(1 - kept))
    assert both(group.beat("a", foo(0, 1))) == (foo(kept), NO_PARTITIONS)
    assert both(group.beat("b", NO_PARTITIONS)) == (None, NO_PARTITIONS)
    released = group.beat("a", foo(kept))
    assert (both(released), released.member_epoch) == ((foo(kept), NO_PARTITIONS), 2)
    assert both(group.beat("b", NO_PARTITIONS)) == (foo(1 - kept), NO_PARTITIONS)


def test_an_assignment_is_repeated_until_the_member_reports_it() -> None:
    group = Members()
    group.join("a")
    assert group.beat("a", NO_PARTITIONS).assignment == foo(0, 1)
    assert group.beat("a", foo(0, 1)).assignment is None
    assert group.beat("a").assignment is None


def test_kafka_answers_as_it_does() -> None:
    shard = Shard(KAFKA_4_3, Settings(), TOPICS, Log(), 0.0)
    request = m.KipHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("foo",),
        topic_partitions=NO_PARTITIONS,
        client_assignors=(),
    )
    assert type(shard.ask(request, 0.0)) is HeartbeatResponse
