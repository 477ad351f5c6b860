"""Consumers of a worker process: kept between tasks, thrown away after a failure."""

from __future__ import annotations

import time
import weakref
from dataclasses import replace

import pytest

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.consumers import RangeConsumer, librdkafka_settings
from spark_groups.spark.reading.fetch_tuning import FETCH_TUNING
from spark_groups.wire.security.settings import security_of
from tests.brokers import create_topic
from tests.secured import SecuredKafka
from tests.waiting import wait_until

SETTINGS = RangeSettings(bootstrap_servers=("127.0.0.1:1",), group_id="g")


def test_isolation_is_always_said_because_the_defaults_differ() -> None:
    assert librdkafka_settings(SETTINGS)["isolation.level"] == "read_uncommitted"
    committed = replace(SETTINGS, read_committed=True)
    assert librdkafka_settings(committed)["isolation.level"] == "read_committed"


def test_defaults_of_the_option_table_hold() -> None:
    told = librdkafka_settings(SETTINGS)
    for each in FETCH_TUNING:
        assert told.get(each.setting, "the system's") == each.default


def test_tuning_wins_over_the_defaults() -> None:
    tuned = replace(SETTINGS, tuning=(("fetch.wait.max.ms", "20"),), rack="r")
    assert librdkafka_settings(tuned)["fetch.wait.max.ms"] == "20"
    assert librdkafka_settings(tuned)["client.rack"] == "r"
    assert "client.rack" not in librdkafka_settings(SETTINGS)


def test_closed_consumer_leaves_no_client_behind() -> None:
    consumer = RangeConsumer(replace(SETTINGS, request_timeout_s=0.2))
    with pytest.raises(BrokerUnreachableError):
        consumer.topic_ids(["t"])
    assert consumer._admin is not None
    admin = weakref.ref(consumer._admin)
    consumer.close()
    wait_until(lambda: admin() is None, what="the end of the client that describes topics")


@pytest.mark.broker
def test_topics_that_do_not_exist_have_no_id(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    cache = ConsumerCache(RangeConsumer)
    settings = replace(SETTINGS, bootstrap_servers=(kafka.bootstrap_servers,))
    with cache.borrow(settings) as consumer:
        assert list(consumer.topic_ids([topic_name, f"{topic_name}-not"])) == [topic_name]
        consumer.look_up([topic_name])
    cache.close()


@pytest.mark.broker
@pytest.mark.parametrize("listener", ["LOGIN", "OTHERHOST"])
def test_who_is_refused_is_told_at_once(secured: SecuredKafka, listener: str) -> None:
    settings = secured.login("SCRAM-SHA-512", password="wrong-word")
    if listener == "OTHERHOST":
        settings = secured.tls()
    consumer = RangeConsumer(
        RangeSettings(
            bootstrap_servers=(secured.kafka.listener(listener),),
            group_id="g",
            security=security_of(settings),
            request_timeout_s=60,
        )
    )
    began_at = time.monotonic()
    with pytest.raises(AccessError, match="refuse this executor") as raised:
        consumer.topic_ids(["t"])
    assert time.monotonic() - began_at < 10
    assert "wrong-word" not in str(raised.value)
    consumer.close()
