"""`spark-groups groups` on a real broker, as somebody types it."""

from __future__ import annotations

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.brokers import create_topic
from tests.ops.commands import invoke
from tests.wire.test_cluster import topic_id


@pytest.mark.broker
def test_a_list_is_limited_by_type_and_state(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    with Cluster(servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        commit_outside(cluster, group_id, {key: 0})
    asked = ("groups", "--bootstrap-server", servers)
    shown = invoke(*asked, "--type", "generic", "--state", "empty,dead")
    assert [group_id, "Classic", "—", "Empty"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    assert group_id not in invoke(*asked, "--type", "consumer,share").stdout


def test_a_type_that_is_none_is_wrong_usage() -> None:
    done = invoke("groups", "--bootstrap-server", "localhost:1", "--type", "strems")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean streams?" in done.stderr
