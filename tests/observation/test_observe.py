"""Reading groups from real brokers, and saying why it cannot be done."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.cli.main import app
from spark_groups.errors import BrokerUnreachableError, GroupNotFoundError, OptionsError
from spark_groups.group.member.messages import found_and_failed
from spark_groups.observation.frames import GroupWatch
from spark_groups.observation.observe import GroupObserver, why_not_found
from spark_groups.observation.reading import GroupType
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import ListedGroup
from spark_groups.wire.connection import Connection
from spark_groups.wire.schemas.wire_messages import Message
from tests.observation.observe_setup import classic_member
from tests.runtime.members import queries
from tests.wire.listener import await_end, greet, listening
from workshop.parts.brokers import Row, create_topic, delete_topic, produce
from workshop.parts.waiting import SOON_S, wait_until


@pytest.fixture
def observer(kafka: EmbeddedKafka) -> Iterator[GroupObserver]:
    with GroupObserver(kafka.bootstrap_servers) as opened:
        yield opened


@pytest.mark.broker
def test_everything_about_a_group_is_read(
    kafka: EmbeddedKafka, observer: GroupObserver, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 3)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=1)] * 5)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()
        reading = observer.observe(group_id)
    (topic,) = reading.topics
    keys = [TopicIdPartition(topic.topic_id, each) for each in range(3)]
    assert (topic.name, topic.partition_count) == (topic_name, 3)
    assert reading.description.group_state == "Stable"
    assert reading.coordinator is not None
    assert str(reading.coordinator).startswith(kafka.bootstrap_servers)
    assert reading.partitions() == frozenset(keys)
    assert [reading.log_start(each) for each in keys] == [0, 0, 0]
    assert [reading.log_end(each) for each in keys] == [0, 5, 0]
    assert found_and_failed(reading.committed)[0][keys[1]].committed_offset == 5


@pytest.mark.broker
def test_a_group_is_described_to_python_as_the_command_prints_it(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=1)] * 5)
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()
        group = spark_groups.describe(
            group_id, servers, settings={"security.protocol": "PLAINTEXT"}
        )
        words = ("describe", group_id, "--bootstrap-server", servers, "--json")
        printed = CliRunner().invoke(app, words)
    assert [each.member_id for each in group.members] == [query.member_id]
    assert [(each.committed_offset, each.lag) for each in group.partitions] == [(0, 0), (5, 0)]
    assert json.loads(printed.stdout) == [json.loads(json.dumps(group.to_json()))]
    with pytest.raises(spark_groups.GroupNotFoundError, match="there is no group 'not-there'"):
        spark_groups.describe("not-there", servers)
    with pytest.raises(OptionsError, match=r"security\.protocol"):
        spark_groups.describe(group_id, servers, settings={"security.protocol": "PLAIN"})


@pytest.mark.broker
def test_a_topic_that_does_not_exist_yet_is_nothing_to_stumble_over(
    kafka: EmbeddedKafka, observer: GroupObserver, topic_name: str, group_id: str
) -> None:
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        start().plan()
        reading = wait_until(lambda: observer.observe(group_id), what="a group")
        assert len(reading.description.members) == 1
        assert reading.topics == ()
        assert reading.partitions() == frozenset()


@pytest.mark.broker
def test_a_group_can_be_read_while_its_topic_goes(
    kafka: EmbeddedKafka, observer: GroupObserver, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        wait_until(lambda: (query.plan(), query.assigned)[1], what="an assignment")
        delete_topic(kafka.bootstrap_servers, topic_name)
        reading = observer.observe(group_id)
        assert not found_and_failed(reading.log_ends.answers)[0]
        assert wait_until(
            lambda: not (query.run(), observer.observe(group_id).partitions())[1],
            what="the end of the topic's partitions in the group",
        )


@pytest.mark.broker
def test_a_group_that_does_not_exist_is_named_with_one_of_a_similar_name(
    kafka: EmbeddedKafka, observer: GroupObserver, topic_name: str, group_id: str
) -> None:
    # Group ids of other tests on this broker all begin alike, and could be suggested.
    unlike = "~" * 20
    with pytest.raises(GroupNotFoundError, match=f"there is no group '{unlike}': the cluster"):
        observer.observe(unlike)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        start().plan()
        with pytest.raises(GroupNotFoundError, match=f"did you mean '{group_id}'"):
            observer.observe(group_id[:-1])


@pytest.mark.parametrize(
    ("kind", "tool"), [("share", "kafka-share-groups.sh"), ("classic", "spark-groups describe")]
)
def test_a_group_of_another_protocol_is_called_one(kind: str, tool: str) -> None:
    listed = ListedGroup(group_id="g", protocol_type=kind, group_state="Stable", group_type=kind)
    message = why_not_found("g", (listed,))
    assert message.startswith(f"group 'g' is a {kind} group, Stable")
    assert message.endswith(f"{tool} shows it")


@pytest.mark.broker
def test_a_classic_group_is_read_too(
    kafka: EmbeddedKafka, observer: GroupObserver, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with classic_member(kafka.bootstrap_servers, group_id, topic_name):
        reading = observer.observe(group_id)
    (topic,) = reading.topics
    (member,) = reading.description.members
    keys = {TopicIdPartition(topic.topic_id, each) for each in range(2)}
    assert reading.group_type is GroupType.CLASSIC
    assert (topic.name, member.assignment.partitions) == (topic_name, keys)
    assert [reading.log_end(each) for each in keys] == [0] * len(keys)


@pytest.mark.broker
def test_a_group_is_read_with_one_request_of_each_kind(
    kafka: EmbeddedKafka,
    observer: GroupObserver,
    topic_name: str,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 300)
    sent: list[str] = []
    send = Connection._send

    def counted(self: Connection, message: Message, *rest: Any) -> None:
        sent.append(message.name)
        send(self, message, *rest)

    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        observer.observe(group_id)
        mine = threading.get_ident()

        def counted_here(self: Connection, message: Message, *rest: Any) -> None:
            (counted if threading.get_ident() == mine else send)(self, message, *rest)

        monkeypatch.setattr(Connection, "_send", counted_here)
        frame = GroupWatch(observer, group_id).look()
    assert len(frame.partitions) == 300
    # One ListOffsets for the starts of the logs, and one for their ends.
    assert Counter(sent) == {
        "ConsumerGroupDescribe": 1,
        "OffsetFetch": 1,
        "Metadata": 1,
        "ListOffsets": 2,
    }


def test_an_address_without_a_listener_is_named() -> None:
    (port,) = free_ports(1)
    with (
        GroupObserver(f"127.0.0.1:{port}", timeout_s=2.0) as observer,
        pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}.*refused"),
    ):
        observer.observe("any")


def test_a_broker_that_hangs_is_given_up_in_time() -> None:
    def hang(peer: object) -> None:
        greet(peer)
        await_end(peer)

    with listening(hang) as port, GroupObserver(f"127.0.0.1:{port}", timeout_s=1.0) as observer:
        began_s = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}"):
            observer.observe("any")
        assert time.monotonic() - began_s < SOON_S


@pytest.mark.broker
def test_the_deadline_is_one_for_all_answers(kafka: EmbeddedKafka, group_id: str) -> None:
    with (
        GroupObserver(kafka.bootstrap_servers, timeout_s=0.000_1) as observer,
        pytest.raises(BrokerUnreachableError, match=kafka.bootstrap_servers),
    ):
        observer.observe(group_id)


@pytest.mark.long
@pytest.mark.broker
def test_after_a_failure_the_next_observation_reconnects(topic_name: str, group_id: str) -> None:
    with EmbeddedKafka() as kafka:
        address = kafka.bootstrap_servers
        create_topic(address, topic_name)
        with (
            queries(address, group_id, topic_name) as start,
            GroupObserver(address, timeout_s=8.0) as observer,
        ):
            start().plan()
            assert observer.observe(group_id).description.group_id == group_id
            kafka.pause()
            with pytest.raises(BrokerUnreachableError, match=address):
                observer.observe(group_id)
            kafka.resume()
            assert observer.observe(group_id).description.group_id == group_id


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:0"])
def test_an_address_that_is_none_is_refused_at_once(servers: str) -> None:
    with pytest.raises(OptionsError, match=r"kafka\.bootstrap\.servers"):
        GroupObserver(servers)
