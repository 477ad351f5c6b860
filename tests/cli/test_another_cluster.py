"""Commands whose address leads to another cluster between two of their requests."""

from __future__ import annotations

import pytest

from spark_groups.errors import BrokerUnreachableError
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from spark_groups.wire.schemas.wire_messages import LIST_OFFSETS, OFFSET_COMMIT_V10, Message
from tests.cli.commands import invoke
from tests.runtime.members import committed, fill
from tests.runtime.proxy import Switched
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import create_topic

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("switches_at", [LIST_OFFSETS, OFFSET_COMMIT_V10], ids=str)
def test_a_reset_does_not_continue_in_another_cluster(
    switched: Switched, topic_name: str, group_id: str, switches_at: Message
) -> None:
    for kafka in (switched.one, switched.other):
        create_topic(kafka.bootstrap_servers, topic_name)
        fill(kafka.bootstrap_servers, topic_name, 1, 10)
        with Cluster(kafka.bootstrap_servers) as cluster:
            key = TopicIdPartition(topic_id(cluster, topic_name), 0)
            assert not any(commit_outside(cluster, group_id, {key: 5}).errors.values())
    switched.proxy.before[switches_at.api_key] = lambda: switched.lead_to(switched.other)
    arguments = ("--topic", topic_name, "--to-earliest", "--execute", "--timeout", "30")
    result = invoke(
        "reset-offsets", group_id, *arguments, "--bootstrap-server", switched.proxy.address
    )
    assert isinstance(result.exception, BrokerUnreachableError)
    ids = switched.cluster_id(switched.other), switched.cluster_id(switched.one)
    assert f"leads to the Kafka cluster {ids[0]}, not to {ids[1]}" in str(result.exception)
    for kafka in (switched.one, switched.other):
        assert committed(kafka.bootstrap_servers, group_id) == {(topic_name, 0): 5}
