"""The metrics of the model beside those of a real broker: the same names, the same counts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from conftest import USUAL_VERSION
from group_lab.coordinator.profile import PROFILES
from group_lab.coordinator.shard import Origin
from group_lab.sim.swarm import Swarm
from lab.tests.scenarios.broker_world import SERVER_PROPERTIES, BrokerWorld
from lab.tests.sim.scenes import scene
from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.broker.java import find_java
from spark_groups.broker.kafka_jars import fetch_kafka
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import NO_PARTITIONS, TopicId, TopicIdPartition

NOT_IN_THE_MODEL = re.compile(r"share|streams|background|batch-(buffer|linger|flush-rate)")
"""Other types of groups, and how a broker batches its writes."""
NOT_COMPARED = re.compile(r"-ms-|idle|partition-load-time|-rate$|num-partitions|group-count")
"""What depends on the speed of the machine, on how many partitions there are, or on the minute:
brokers count groups that often."""
BEAN = re.compile(r"(?:kafka\.server:type=group-coordinator-metrics(,\w+=[^:]+)?)?:([\w-]+)=(.*)")
OLDER = re.compile(r"kafka\.coordinator\.group:type=GroupMetadataManager,name=(\w+):Value=(.*)")
JOIN = m.HeartbeatRequest(
    group_id="g",
    member_id="m1",
    member_epoch=0,
    rebalance_timeout_ms=10_000,
    subscribed_topic_names=("orders1",),
    topic_partitions=NO_PARTITIONS,
)


class Jmx:
    """The metrics of a broker, as Kafka's JmxTool reads them."""

    def __init__(self, port: int) -> None:
        self._url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"

    def read(self) -> dict[str, float]:
        # The tool of this version: that of 4.4.0 is not published.
        words = [str(find_java()), "-cp", fetch_kafka(USUAL_VERSION).class_path]
        words += ["org.apache.kafka.tools.JmxTool", "--jmx-url", self._url, "--one-time"]
        words += ["--report-format", "properties"]
        for each in ("kafka.server:type=group-coordinator-metrics,*", "kafka.coordinator.group:*"):
            words += ["--object-name", each]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=800)
        found = {}
        for line in done.stdout.splitlines():
            if older := OLDER.fullmatch(line):
                found[older[1]] = float(older[2])
            elif bean := BEAN.fullmatch(line):
                found[bean[2] + (bean[1] or "")] = float(bean[3])
        return {name: value for name, value in found.items() if not NOT_IN_THE_MODEL.search(name)}


@pytest.fixture(params=["4.0.0", USUAL_VERSION, "4.4.0"])
def measured(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, BrokerWorld, Jmx]]:
    """A broker whose metrics can be read."""
    (port,) = free_ports(1)
    flags = {
        "jmxremote.port": port,
        "jmxremote.rmi.port": port,
        "jmxremote.host": "127.0.0.1",
        "jmxremote.authenticate": "false",
        "jmxremote.ssl": "false",
    }
    words = [f"-Dcom.sun.management.{name}={value}" for name, value in flags.items()]
    words.append("-Djava.rmi.server.hostname=127.0.0.1")
    kafka = EmbeddedKafka(request.param, server_properties=SERVER_PROPERTIES)
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_TOOL_OPTIONS", " ".join(words))
        kafka.start()
    world = BrokerWorld(kafka.bootstrap_servers)
    try:
        yield request.param, world, Jmx(port)
    finally:
        world.close()
        kafka.stop()


def requests(topic_id: TopicId, epoch: int) -> list[m.Request]:
    """Two members join, one commits two offsets, the other leaves."""
    keys = [TopicIdPartition(topic_id, each) for each in (0, 1)]
    commit = m.OffsetCommitRequest(
        group_id="g",
        member_id="m1",
        member_epoch=epoch,
        offsets={key: m.OffsetAndMetadata(3) for key in keys},
    )
    return [
        JOIN,
        commit,
        replace(JOIN, member_id="m2"),
        replace(JOIN, member_id="m2", member_epoch=m.LEAVE_GROUP_MEMBER_EPOCH),
    ]


def test_names_and_counts_are_those_of_a_broker(measured: tuple[str, BrokerWorld, Jmx]) -> None:
    version, world, jmx = measured
    profile = f"kafka-{version[:3]}"
    epoch = 1 + PROFILES[profile].first_group_epoch
    topic_id = world.create_topic("orders1", 2)
    before = jmx.read()
    for each in requests(topic_id, epoch):
        answer = world.ask(each)
        assert isinstance(answer, m.HeartbeatResponse | m.OffsetCommitResponse), answer
    asked = scene(Swarm(partitions=2), profile, 1)
    (model_id,) = {key.topic_id for key in asked.storage.logs}
    coordination = asked.coordination
    for each in requests(model_id, epoch):
        outgoing = Outgoing(Channel.OFFSETS, each, coordination.node)
        coordination.serve(outgoing, Origin(), 0, lambda _: None)
        asked.schedule.run_until(asked.now + 1.0)
    found = jmx.read()
    named = {name.partition("name=")[2]: value for name, value in coordination.metrics().items()}
    assert named.keys() == found.keys()
    compared = [name for name in found if not NOT_COMPARED.search(name)]
    # The world has a group of its own.
    assert {name: found[name] - before[name] for name in compared} == {
        name: named[name] for name in compared
    }
    assert named["consumer-group-rebalance-count"] == 2, "a leave is none"
    assert named["offset-commit-count"] == 2
