"""What real coordinators do for an operator: commit, and delete offsets and groups."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.types import TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside, delete_group, delete_offsets
from tests.brokers import create_topic
from tests.runtime.members import queries
from tests.waiting import wait_until
from tests.wire.test_cluster import topic_id


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_offsets_of_a_group_without_members_are_set_and_deleted(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, 2)
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        # The group does not exist: a commit from outside makes it.
        done = commit_outside(cluster, group_id, {keys[0]: 5, keys[1]: 7})
        assert (done.error_code, done.errors) == (0, dict.fromkeys(keys, 0))
        committed = cluster.fetch_all_offsets(group_id).offsets
        assert {key: each.committed_offset for key, each in committed.items()} == {
            keys[0]: 5,
            keys[1]: 7,
        }
        named = TopicPartition(topic_name, 0)
        deleted = delete_offsets(cluster, group_id, [named])
        assert (deleted.error_code, deleted.errors) == (0, {named: 0})
        assert set(cluster.fetch_all_offsets(group_id).offsets) == {keys[1]}
        assert delete_group(cluster, group_id).error_code == ErrorCode.NONE
        assert delete_group(cluster, group_id).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        gone = delete_offsets(cluster, group_id, [named])
        assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_a_group_with_members_refuses_all_of_it(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name)
    named = TopicPartition(topic_name, 0)
    with queries(servers, group_id, topic_name) as start, Cluster(servers) as cluster:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        refused = commit_outside(cluster, group_id, {key: 5})
        assert refused.errors == {key: ErrorCode.UNKNOWN_MEMBER_ID}
        assert delete_group(cluster, group_id).error_code == ErrorCode.NON_EMPTY_GROUP
        answer = delete_offsets(cluster, group_id, [named])
        assert answer.errors == {named: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
