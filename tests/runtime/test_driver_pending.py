"""What a driver shows of partitions that another member has not released, on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import WithheldRange
from spark_groups.group.member.messages import OffsetFetchRequest, OffsetForLeaderEpochRequest
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.types import TopicIdPartition
from tests.runtime.members import (
    QueryLike,
    evict,
    fill,
    filled_topic,
    patient,
    queries,
    two_sharing,
)
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = pytest.mark.broker

ROWS, READ_EACH = 30, 10


def shown(query: QueryLike) -> tuple[WithheldRange, ...]:
    """Trigger once and return the ranges that are withheld, once all of them are known."""
    query.run()
    ranges = query.driver.snapshot().pending_ranges
    return ranges if all(each.committed_offset and each.log_end_offset for each in ranges) else ()


def waiting(start: Callable[[], QueryLike]) -> tuple[QueryLike, QueryLike, WithheldRange]:
    """Return an owner in its second batch, an heir, and the range that the heir waits for."""
    owner = start()
    owner.plan_rows(PlanLimit(max_offsets=2 * READ_EACH))
    owner.commit_all()
    owner.plan_rows(PlanLimit(max_offsets=2 * READ_EACH))
    heir = start()
    (withheld,) = wait_until(lambda: shown(heir), what="the withheld range")
    return owner, heir, withheld


def test_pending_partition_shows_its_withheld_range_and_the_next_plan_starts_there(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        owner, heir, withheld = waiting(start)
        partition = withheld.partition
        assert withheld == WithheldRange(topic_name, partition, READ_EACH, ROWS)
        waiting_for = f"waiting for {topic_name}-{partition}: [{READ_EACH}, {ROWS}), not released"
        lines = [each for each in heir.driver.snapshot().timeline if waiting_for in each]
        assert len(lines) == 1
        assert not heir.ranges, "it is only shown"

        owner.commit_all()
        plan = heir.plan_rows()
        assert [(each.partition, each.from_offset, each.until_offset) for each in plan.ranges] == [
            (partition, 2 * READ_EACH, ROWS)
        ], "as its owner's last batch left it: fetched afresh"
        assert heir.driver.snapshot().pending_ranges == ()
        heir.commit_all()


def test_released_partition_is_read_exactly_from_where_it_was_withheld(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    """An owner that is removed in the middle of its batch commits nothing of it."""
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        owner, heir, withheld = waiting(start)
        owner.vanish()
        evict(kafka.bootstrap_servers, group_id, owner.member_id)
        wait_until(lambda: len(heir.assigned) == 2, what="all partitions")
        plan = heir.plan_rows()
        starts = {each.partition: (each.from_offset, each.until_offset) for each in plan.ranges}
        offsets = (withheld.committed_offset, withheld.log_end_offset)
        assert starts[withheld.partition] == offsets == (READ_EACH, ROWS)


def test_from_the_assignment_to_the_plan_it_takes_one_round_trip(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OffsetFetch is answered only once the log ends are asked for: both are under way together."""
    patient(monkeypatch, resolving_s=LONG_S, under_way_s=LONG_S, first_assignment_s=LONG_S)
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        first.plan_rows(PlanLimit(max_offsets=2 * READ_EACH))
        first.commit_all()
        first.driver.leave(LONG_S)

        asked: list[Outgoing] = []
        listed: list[frozenset[TopicIdPartition]] = []
        is_listing = threading.Event()
        ask = ChannelThreads._ask

        def noted(self: ChannelThreads, outgoing: Outgoing) -> Any:
            asked.append(outgoing)
            if outgoing.channel is Channel.TRIGGER:
                listed.append(outgoing.request.partitions)  # type: ignore[union-attr]
                is_listing.set()
            if isinstance(outgoing.request, OffsetFetchRequest):
                is_listing.wait(LONG_S)
            return ask(self, outgoing)

        monkeypatch.setattr(ChannelThreads, "_ask", noted)
        plan = start().plan()
        assert plan is not None
        assert {(each.from_offset, each.until_offset) for each in plan.ranges} == {
            (READ_EACH, ROWS)
        }
        assert len(plan.ranges) == 2
        assert listed == [plan.partitions()], "the ends are listed once"
        requests = [each.request for each in asked]
        assert sum(isinstance(each, OffsetFetchRequest) for each in requests) == 1
        assert not any(isinstance(each, OffsetForLeaderEpochRequest) for each in requests)


def test_plan_waits_for_the_position_of_a_partition_that_was_just_assigned(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no member reads the partition for a whole batch."""
    patient(monkeypatch, resolving_s=LONG_S)
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        stays, goes = two_sharing(start)
        ask = ChannelThreads._ask

        def late(self: ChannelThreads, outgoing: Outgoing) -> Any:
            if isinstance(outgoing.request, OffsetFetchRequest):
                time.sleep(0.5)
            return ask(self, outgoing)

        monkeypatch.setattr(ChannelThreads, "_ask", late)
        fill(kafka.bootstrap_servers, topic_name, 2, ROWS)
        (own,) = stays.plan_rows().ranges
        goes.driver.leave(LONG_S)
        stays.finish()
        wait_until(lambda: len(stays.assigned) == 2, what="the other partition")
        plan = stays.plan()
        assert plan is not None
        assert [each.partition for each in plan.ranges] == [1 - own.partition]
