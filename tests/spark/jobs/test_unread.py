"""What a group has not read yet, looked at on a real broker: before it has begun, and later."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_groups.errors import OptionsError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.unread import unread
from spark_groups.spark.options.source_options import SourceOptions
from tests.brokers import Row, create_topic, produce
from tests.spark.control.test_shutdown import committed_offsets

pytestmark = pytest.mark.broker


def commit(servers: str, group_id: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id, "log_level": 0})
    place = TopicPartition(topic, 0, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_a_group_that_is_not_there_has_everything_before_it_then_what_is_left(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    headers = (("h", b"1"), ("h", None))
    rows = [Row(b"%d" % each, key=b"k", partition=0, headers=headers) for each in range(4)]
    produce(servers, topic_name, rows)
    options = SourceOptions.of(
        {
            "kafka.bootstrap.servers": servers,
            "kafka.group.id": group_id,
            "subscribe": topic_name,
        }
    )
    found = list(unread(options))
    assert [(each.offset, each.key, each.value) for each in found] == [
        (each, b"k", b"%d" % each) for each in range(4)
    ]
    assert {each.headers for each in found} == {headers}
    assert committed_offsets(kafka, group_id) == {}
    commit(servers, group_id, topic_name, 3)
    assert [each.value for each in unread(options)] == [b"3"]
    commit(servers, group_id, topic_name, 4)
    assert list(unread(options)) == []
    assert committed_offsets(kafka, group_id) == {0: 4}


def test_topics_have_to_be_named() -> None:
    options = SourceOptions.of(
        {
            "kafka.bootstrap.servers": "b:1",
            "kafka.group.id": "g",
            "subscribePattern": "a.*",
        }
    )
    with pytest.raises(OptionsError, match="has to be named"):
        list(unread(options))
