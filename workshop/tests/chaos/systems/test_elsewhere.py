"""Another cluster: its records belong nowhere else, and commits there are found."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.wire.coordinator_connection_setup import topic_id
from workshop.chaos.systems.elsewhere import Elsewhere
from workshop.chaos.systems.record import is_right


@pytest.mark.broker
def test_records_and_commits_of_the_other_cluster_are_recognized(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    elsewhere = Elsewhere(servers, group_id, {topic_name: 1}, 100.0, 7)
    elsewhere.start()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"{group_id}-other"})
    consumer.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])
    (message,) = consumer.consume(1, 60.0)
    consumer.close()
    assert not is_right(message.value(), topic_name, 0, 0)
    assert elsewhere.stop() == []
    with Cluster(servers) as cluster:
        partition = TopicIdPartition(topic_id(cluster, topic_name), 0)
        for offset in (1, 2):
            commit_outside(cluster, group_id, {partition: offset})
    assert elsewhere.stop() == ["2 offsets were committed in the other cluster"]
