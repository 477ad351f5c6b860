"""A member whose brokers' address leads to another cluster, with the same topics and groups."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import CheckpointError, ErrorCode
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.schemas.wire_messages import CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT_V10
from tests.runtime.members import all_at, committed, fill, queries
from tests.runtime.proxy import Switched
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker


def groups(kafka: EmbeddedKafka) -> set[str]:
    with Cluster(kafka.bootstrap_servers) as cluster:
        return {each.group_id for each in cluster.list_groups()}


def same_topic(switched: Switched, topic: str, rows: tuple[int, int]) -> None:
    for kafka, count in zip((switched.one, switched.other), rows, strict=True):
        create_topic(kafka.bootstrap_servers, topic)
        fill(kafka.bootstrap_servers, topic, 1, count)


def test_a_query_reads_and_commits_nothing_in_another_cluster_and_continues_in_its_own(
    switched: Switched, topic_name: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one, other = switched.one.bootstrap_servers, switched.other.bootstrap_servers
    same_topic(switched, topic_name, (10, 20))
    ids = switched.cluster_id(switched.one), switched.cluster_id(switched.other)
    with queries(switched.proxy.address, group_id, topic_name) as start:
        query = start()
        plan = query.plan_rows()
        assert plan.cluster_id == ids[0]
        switched.lead_to(switched.other)
        said = f"leads to the Kafka cluster {ids[1]}, not to {ids[0]}"
        # Its rows are in a sink by now: their offsets belong to the first cluster.
        query.finish()
        wait_until(lambda: said in caplog.text, what="a WARN with both ids")
        for _ in range(5):
            assert query.run() is None
        since = switched.proxy.seen[-1][0]
        wait_until(lambda: query.driver.snapshot().unreachable_age_s is not None)
        keys = {key for at, key in switched.proxy.seen if at > since}
        assert not keys & {CONSUMER_GROUP_HEARTBEAT.api_key, OFFSET_COMMIT_V10.api_key}
        assert committed(other, group_id) == {}
        assert group_id not in groups(switched.other)
        switched.lead_to(switched.one)
        fill(one, topic_name, 1, 5)
        plan = query.plan_rows()
        assert [(e.from_offset, e.until_offset) for e in plan.ranges] == [(10, 15)]
        query.commit_all()
        assert committed(one, group_id) == all_at(topic_name, 1, 15)
    assert group_id not in groups(switched.other)


@pytest.mark.parametrize("warm_up_tasks", [0, 2])
def test_a_checkpoint_of_another_cluster_is_refused(
    switched: Switched, topic_name: str, group_id: str, warm_up_tasks: int
) -> None:
    same_topic(switched, topic_name, (10, 20))
    ids = switched.cluster_id(switched.one), switched.cluster_id(switched.other)
    with queries(switched.proxy.address, group_id, topic_name) as start:
        plan = start().plan_rows()
    switched.lead_to(switched.other)
    with queries(switched.proxy.address, group_id, topic_name) as start:
        query = start(checkpointed=plan, warm_up_tasks=warm_up_tasks)
        with pytest.raises(CheckpointError, match=f"cluster {ids[1]}, not to {ids[0]}") as raised:
            query.plan()
        assert "give the query a new checkpointLocation" in str(raised.value)
    assert group_id not in groups(switched.other)
    # The right address is enough.
    switched.lead_to(switched.one)
    with queries(switched.proxy.address, group_id, topic_name) as start:
        query = start(checkpointed=plan)
        query.driver.finish(plan)
        wait_until(lambda: query.run() is None and query.assigned)
        query.commit_all()
    assert committed(switched.one.bootstrap_servers, group_id) == all_at(topic_name, 1, 10)


def test_an_old_plan_without_a_cluster_is_accepted(
    switched: Switched, topic_name: str, group_id: str
) -> None:
    same_topic(switched, topic_name, (10, 20))
    with queries(switched.proxy.address, group_id, topic_name) as start:
        plan = start().plan_rows()
    with queries(switched.proxy.address, group_id, topic_name) as start:
        query = start(checkpointed=replace(plan, cluster_id=None))
        query.driver.finish(replace(plan, cluster_id=None))
        fill(switched.one.bootstrap_servers, topic_name, 1, 5)
        assert query.plan_rows().cluster_id == switched.cluster_id(switched.one)


def test_the_member_of_a_checkpoint_does_not_leave_a_group_of_another_cluster(
    switched: Switched, topic_name: str, group_id: str
) -> None:
    same_topic(switched, topic_name, (10, 20))
    with queries(switched.proxy.address, group_id, topic_name) as start:
        plan = start().plan_rows()
        with queries(switched.other.bootstrap_servers, group_id, topic_name) as join:
            stranger = join(member={"instance_id": "same"})
            stranger.plan_rows()
            switched.lead_to(switched.other)
            with queries(switched.proxy.address, group_id, topic_name) as restart:
                query = restart(checkpointed=plan, member={"instance_id": "same"})
                with pytest.raises(CheckpointError):
                    query.plan()
            with Cluster(switched.other.bootstrap_servers) as cluster:
                found = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
            assert found.error_code == ErrorCode.NONE
            assert [each.member_id for each in found.members] == [stranger.member_id]
