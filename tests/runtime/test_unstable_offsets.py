"""Queries while a transaction with an offset of their group is open.

OffsetFetch then answers UNSTABLE_OFFSET_COMMIT for its partition: another offset may be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import AvailableNowError
from spark_groups.group.batches.available_now_wait import AvailableNowWait, WhenUnsettled
from spark_groups.group.ledger.positions import SAID_AFTER_S
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.observation.local_members import parse_local_members
from spark_groups.observation.observe import GroupObserver
from spark_groups.types import BatchPlan, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.runtime.members import all_at, committed, filled_topic, queries
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import unstable_offset
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

CURE = "in a transaction that is still open"


@pytest.fixture
def abort(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Callable[[], None]]:
    """Open a transaction with offset 10 of partition 0, where 5 is committed for both."""
    servers = kafka.bootstrap_servers
    filled_topic(servers, topic_name, 2, 10)
    with Cluster(servers) as cluster:
        topic = topic_id(cluster, topic_name)
        offsets = {TopicIdPartition(topic, each): 5 for each in range(2)}
        assert not any(commit_outside(cluster, group_id, offsets).errors.values())
    with unstable_offset(servers, group_id, topic_name, 0, 10) as abort:
        yield abort


def ranges(plan: BatchPlan | None) -> set[tuple[int, int, int]]:
    assert plan is not None
    return {(each.partition, each.from_offset, each.until_offset) for each in plan.ranges}


@pytest.mark.parametrize("point", [StartingPoint.EARLIEST, StartingPoint.LATEST])
def test_the_other_partitions_are_read_and_the_wait_is_reported(
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    abort: Callable[[], None],
    point: StartingPoint,
) -> None:
    servers = kafka.bootstrap_servers
    with queries(servers, group_id, topic_name) as start:
        query = start(start=point)
        assert ranges(query.plan_rows()) == {(1, 5, 10)}
        waits = f"cannot read {topic_name}-0 yet: OffsetFetch answers UNSTABLE_OFFSET_COMMIT"
        wait_until(lambda: (query.run(), waits in query.timeline)[1], what="a word about it")
        assert CURE in query.timeline
        snapshot = query.driver.snapshot()
        shown = {each.partition: each.waits_for for each in snapshot.partitions}
        assert "UNSTABLE_OFFSET_COMMIT" in shown[0]
        assert CURE in shown[0]
        assert shown[1] is None
        (local,) = parse_local_members([snapshot.as_plain()], group_id).values()
        assert [(each.topic, each.partition) for each in local.waits_for] == [(topic_name, 0)]
        with GroupObserver(servers) as observer:
            remarks = {each.partition: each.remark for each in observer.view(group_id).partitions}
        assert remarks == {0: "committed offset: UNSTABLE_OFFSET_COMMIT", 1: ""}

        abort()
        assert ranges(query.plan_rows()) == {(0, 5, 10)}
        query.commit_all()
        assert committed(servers, group_id) == all_at(topic_name, 2, 10)
        assert query.timeline.count(waits) == 1
        assert not any(each.waits_for for each in query.driver.snapshot().partitions)


def test_available_now_reads_the_others_and_says_what_it_leaves(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, abort: Callable[[], None]
) -> None:
    wait = AvailableNowWait(timeout_s=SAID_AFTER_S + 1.0)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(available_now_wait=wait)
        query.driver.prepare_available_now()
        assert ranges(query.plan()) == {(1, 5, 10)}
        assert query.run() is None
        left = f"no position is known for {topic_name}-0: OffsetFetch answers UNSTABLE_"
        assert left in query.timeline
        query.commit_all()
        abort()
        assert ranges(query.plan_rows()) == {(0, 5, 10)}
        query.commit_all()
    assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)


@pytest.mark.usefixtures("abort")
def test_available_now_that_may_leave_nothing_fails_and_says_why(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    wait = AvailableNowWait(timeout_s=0.5, when_unsettled=WhenUnsettled.FAIL)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(available_now_wait=wait)
        query.driver.prepare_available_now()
        assert ranges(query.plan()) == {(1, 5, 10)}
        query.finish()
        with pytest.raises(AvailableNowError, match="answers UNSTABLE_OFFSET_COMMIT"):
            query.plan()
