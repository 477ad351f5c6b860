"""What a group, a broker or a cluster refuses for good: one clear error, soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_groups.broker import embedded
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.kafka_jars import KafkaArtifacts, _fill, _is_complete
from spark_groups.errors import GroupError
from spark_groups.group.member.subscription import Subscription
from spark_groups.runtime.cache_directory import cache_dir
from spark_groups.wire.schemas.wire_messages import FIND_COORDINATOR, METADATA
from tests.runtime.classic import ClassicConsumer
from tests.runtime.members import QueryLike, queries
from tests.wire.listener import correlation_id, greet, listening, read_frame, response
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import SOON_S

pytestmark = [pytest.mark.broker, pytest.mark.long]

OLD_VERSION = "3.9.1"


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedKafka]:
    """A broker that lets one member into a group, and converts no group."""
    refusing = {"group.consumer.max.size": "1", "group.consumer.migration.policy": "disabled"}
    with EmbeddedKafka(server_properties=refusing) as kafka:
        yield kafka


@contextmanager
def refused(said: str) -> Iterator[None]:
    """Expect one error that says all this, soon."""
    began_at = time.monotonic()
    with pytest.raises(GroupError, match=said) as caught:
        yield
    assert time.monotonic() - began_at < SOON_S
    assert str(caught.value).startswith("group ")


def test_a_full_group_says_which_limit_to_raise(
    strict: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(strict.bootstrap_servers, topic_name)
    with queries(strict.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        first.plan()
        with refused(r"GROUP_MAX_SIZE_REACHED.*maximum capacity of 1.*group\.consumer\.max\.size"):
            start().plan()
        first.driver.leave()
        start().plan()


def test_a_classic_group_is_not_converted_where_the_broker_forbids_it(
    strict: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(strict.bootstrap_servers, topic_name)
    with (
        ClassicConsumer(strict.bootstrap_servers, group_id, topic_name) as classic,
        queries(strict.bootstrap_servers, group_id, topic_name) as start,
    ):
        classic.await_partitions(1)
        said = r"GROUP_ID_NOT_FOUND.*online upgrade is disabled.*group\.consumer\.migration\.policy"
        with refused(said):
            start().plan()
        assert classic.partitions == {0}, "the classic consumers are left alone"


@pytest.mark.parametrize("version", ["4.0.0", "4.3.1"])
def test_an_assignor_that_the_broker_does_not_have_is_named_beside_those_it_has(
    kafka_version: Callable[[str], EmbeddedKafka], version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        said = r"UNSUPPORTED_ASSIGNOR.*nope.*uniform.*range.*kafka\.group\.remote\.assignor"
        with refused(said):
            start(member={"server_assignor": "nope"}).plan()


def test_a_pattern_that_only_the_broker_cannot_read_is_shown_with_its_reason(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    # google-re2 takes \C for one byte, RE2/J does not know it.
    pattern = {"subscription": Subscription.of_pattern(r"orders\C")}
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        said = r"INVALID_REGULAR_EXPRESSION.*orders\\C.*invalid escape sequence.*subscribePattern"
        with refused(said):
            start(member=pattern).plan()


def test_a_cluster_whose_consumer_protocol_is_off_says_how_to_turn_it_on(
    topic_name: str, group_id: str
) -> None:
    with EmbeddedKafka(format_arguments=("--feature", "group.version=0")) as kafka:
        create_topic(kafka.bootstrap_servers, topic_name)
        with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
            said = r"UNSUPPORTED_VERSION.*feature group\.version is 0.*upgrade --feature group\.ver"
            with refused(said):
                start().plan()


def test_errors_distinguish_an_old_broker_from_a_disabled_feature(group_id: str) -> None:
    older = tuple({"api_key": key, "min_version": 0, "max_version": 12} for key in (3, 8, 9, 10))
    ports: list[int] = []

    def script(peer: socket.socket) -> None:
        greet(peer, older)
        while frame := read_frame(peer):
            node = {"node_id": 1, "host": "127.0.0.1", "port": ports[0]}
            if int.from_bytes(frame[:2], "big") == FIND_COORDINATOR.api_key:
                found = {**node, "key": group_id, "error_code": 0, "error_message": None}
                message, values = FIND_COORDINATOR, {"coordinators": [found]}
            else:
                listed = {"brokers": [{**node, "rack": None}], "topics": [], "error_code": 0}
                message, values = METADATA, {**listed, "cluster_id": "c", "controller_id": 1}
            answer = {"throttle_time_ms": 0, **values}
            peer.sendall(response(message, correlation_id(frame), answer))

    # One connection may be open, with nothing asked on it yet, while another one asks.
    with listening(script, at_once=True) as port:
        ports.append(port)
        query = QueryLike(f"127.0.0.1:{port}", group_id, "orders")
        try:
            with refused(r"does not support ConsumerGroupHeartbeat.*Apache Kafka 4\.0 or later"):
                query.plan()
        finally:
            query.driver.leave(0.5)


@pytest.mark.slow
def test_a_real_broker_before_kafka_4_is_refused_too(
    topic_name: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = KafkaArtifacts(OLD_VERSION, cache_dir() / "kafka" / OLD_VERSION)
    if not _is_complete(older.directory):
        _fill(older, time.monotonic() + 280)
    # The launcher itself refuses what this project does not run on.
    monkeypatch.setattr(embedded, "fetch_kafka", lambda version: older)
    with EmbeddedKafka(OLD_VERSION) as kafka:
        create_topic(kafka.bootstrap_servers, topic_name)
        with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
            said = r"does not support ConsumerGroupHeartbeat v1.*Apache Kafka 4\.0 or later"
            with refused(said):
                start().plan()
