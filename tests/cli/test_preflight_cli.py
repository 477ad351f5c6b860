"""`spark-groups preflight` on real brokers: what it predicts is what a join then meets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import spark_groups
from group_lab.assignors.embedded import encode_assignment
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import EmbeddedAssignment
from spark_groups.group.member.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
)
from spark_groups.types import NO_PARTITIONS, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from spark_groups.wire.properties_file import render_properties
from tests.cli.classic_member import classic_leader, subscribed_to
from tests.cli.commands import invoke
from tests.runtime.classic import ClassicConsumer
from tests.runtime.members import heartbeat
from tests.secured import SecuredKafka
from tests.spark.schemas.stub_registry import running_stub, schema
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import create_topic, produce, unstable_offset
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

CONVERTED = ["4.3.1", "4.0.0", "4.4.0"]
CUSTOM = encode_assignment(EmbeddedAssignment(user_data=b"plan 9"))


class Group:
    """A group on a broker, what `preflight` reports about it, and what a join meets.

    Args:
        servers: The broker.
        group_id: The group.
        topic: A topic of two partitions.
    """

    def __init__(self, servers: str, group_id: str, topic: str) -> None:
        self.servers, self.group_id, self.topic = servers, group_id, topic
        create_topic(servers, topic, 2)
        with Cluster(servers) as cluster:
            self.topic_id = topic_id(cluster, topic)

    def preflight(self, *options: str) -> dict[str, Any]:
        """Return the document; the exit code matches the verdict."""
        where = ("--bootstrap-server", self.servers, "--json")
        done = invoke("preflight", self.group_id, *where, *options)
        assert done.stdout, done.exception
        document: dict[str, Any] = json.loads(done.stdout)
        assert done.exit_code == (document["verdict"] in {"unknown", "blocks"})
        return document

    def findings(self, *options: str) -> dict[str, str]:
        """Return the reasons of the checks that are not ok."""
        return {
            each["check"]: f"{each['verdict']}: {each['reason']}"
            for each in self.preflight(*options)["findings"]
            if each["verdict"] != "ok"
        }

    def join(self, instance_id: str | None = None, member_id: str | None = None) -> ErrorCode:
        """Join, and leave again unless the member has a name; returns what a join meets."""
        name = member_id or str(uuid.uuid4())
        code = self.beat(name, 0, instance_id)
        if code == ErrorCode.NONE and member_id is None:
            self.leave(name, instance_id)
        return code

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        assert self.beat(member_id, LEAVE_GROUP_MEMBER_EPOCH, instance_id) == ErrorCode.NONE

    def beat(self, member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=(self.topic,) if epoch == 0 else None,
            topic_partitions=NO_PARTITIONS if epoch == 0 else None,
        )
        return ErrorCode(heartbeat(self.servers, request).error_code)

    def commit(self, *offsets: int) -> None:
        """Commit an offset for each of the first partitions, as a tool does."""
        keys = {TopicIdPartition(self.topic_id, index): at for index, at in enumerate(offsets)}
        with Cluster(self.servers) as cluster:
            assert set(commit_outside(cluster, self.group_id, keys).errors.values()) == {0}


@pytest.fixture
def group_on(
    kafka_version: Callable[[str], EmbeddedKafka], group_id: str, topic_name: str
) -> Callable[[str], Group]:
    """A group on a broker of a version."""
    return lambda version: Group(kafka_version(version).bootstrap_servers, group_id, topic_name)


@pytest.fixture
def group(kafka: EmbeddedKafka, group_id: str, topic_name: str) -> Group:
    return Group(kafka.bootstrap_servers, group_id, topic_name)


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedKafka]:
    """A broker that converts no group, and lets two members into one."""
    refusing = {"group.consumer.max.size": "2", "group.consumer.migration.policy": "disabled"}
    with EmbeddedKafka(server_properties=refusing) as kafka:
        yield kafka


@pytest.mark.parametrize("version", CONVERTED)
def test_a_classic_group_can_be_joined_and_becomes_a_mixed_one(
    group_on: Callable[[str], Group], version: str
) -> None:
    group = group_on(version)
    assert group.findings("--topic", group.topic) == {}
    group.commit(0, 0)
    with ClassicConsumer(group.servers, group.group_id, group.topic, "range") as consumer:
        consumer.await_partitions(2)
        before = group.preflight()
        assert (before["verdict"], before["group_type"]) == ("ok", "classic")
        (member,) = before["members"]
        assert (member["protocol"], member["subscription_version"]) == ("classic", 3)
        assert (member["assignment_version"], member["user_data_bytes"]) == (0, 0)
        assert group.join(member_id="m") == ErrorCode.NONE
        mixed = group.preflight()
        assert (mixed["verdict"], mixed["group_type"]) == ("ok", "consumer")
        assert sorted(each["protocol"] for each in mixed["members"]) == ["classic", "consumer"]
        group.leave("m")
        assert group.preflight()["group_type"] == "classic", (
            "the last member of the consumer protocol left"
        )


def test_librdkafkas_cooperative_sticky_is_a_trap_from_its_second_rebalance_on(
    group: Group,
) -> None:
    with ExitStack() as running:
        for partitions in (2, 1):
            consumer = ClassicConsumer(group.servers, group.group_id, group.topic)
            running.enter_context(consumer).await_partitions(partitions)
            group_findings = group.findings()
            if partitions == 2:
                assert group_findings["assignor"].startswith("warning: cooperative-sticky of librd")
        assert group_findings["assignor"].startswith("blocks: librdkafka's cooperative-sticky put")
        assert group.join() == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", CONVERTED)
@pytest.mark.parametrize(
    ("embedded", "finding"),
    [
        ((None, CUSTOM), ("assignor", "blocks: custom assignor ours put user data")),
        ((b"\x00\x03", b""), ("embedded versions", "blocks: the embedded subscription")),
        ((None, b"\x00\x01\xff"), ("embedded versions", "blocks: the embedded subscription")),
    ],
    ids=["user data", "malformed subscription", "malformed assignment"],
)
def test_embedded_bytes_that_a_conversion_would_lose_block(
    group_on: Callable[[str], Group],
    version: str,
    embedded: tuple[bytes | None, bytes],
    finding: tuple[str, str],
) -> None:
    group = group_on(version)
    metadata, assignment = embedded
    metadata = subscribed_to(group.topic) if metadata is None else metadata
    with classic_leader(
        group.servers, group.group_id, metadata, assignment, protocol="ours"
    ) as member_id:
        check, reason = finding
        found = group.findings()[check]
        assert found.startswith(reason)
        assert member_id in found
        assert group.join() == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_connect_workers_blocks_and_then_warns(group: Group) -> None:
    other = {"protocol": "sessioned", "protocol_type": "connect"}
    with classic_leader(group.servers, group.group_id, b"url", b"tasks", **other):
        found = group.findings()["group type"]
        assert found == "blocks: its members are not consumers: their protocol type is connect"
        assert group.join() == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.findings()["group type"].startswith("warning: an empty group of protocol type con")
    assert group.join() == ErrorCode.NONE


def test_in_a_rebalance_nothing_is_certain(group: Group) -> None:
    metadata = subscribed_to(group.topic)
    with classic_leader(group.servers, group.group_id, metadata, assignment=None):
        found = group.findings()
        assert found["group state"].startswith("unknown: CompletingRebalance")
        assert found["assignor"] == "unknown: brokers show it only of stable groups of consumers"


@pytest.mark.long
def test_a_join_in_the_first_rebalance_fails(group_id: str, topic_name: str) -> None:
    with EmbeddedKafka(server_properties={"group.initial.rebalance.delay.ms": "15000"}) as kafka:
        group = Group(kafka.bootstrap_servers, group_id, topic_name)
        with ClassicConsumer(group.servers, group_id, topic_name, "range"):
            wait_until(
                lambda: group.preflight()["group_state"] == "PreparingRebalance", what="a rebalance"
            )
            assert "UNKNOWN_SERVER_ERROR" in group.findings()["group state"]
            assert group.join() == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_static_member_takes_the_place_of_a_classic_one_but_not_of_its_equal(
    group: Group,
) -> None:
    metadata = subscribed_to(group.topic)
    gate = ("--instance-id", "gate-1")
    assert group.findings(*gate) == {"topic rights": "warning: not checked: no topics are known"}
    with classic_leader(group.servers, group.group_id, metadata, instance_id="gate-1") as owner:
        static = {each["check"]: each["reason"] for each in group.preflight()["findings"]}
        assert static["instance ids"].startswith("taken: gate-1")
        assert group.findings(*gate)["instance ids"] == (
            f"warning: gate-1 belongs to the classic consumer {owner}: the new member replaces it,"
            " and it fails with FENCED_INSTANCE_ID"
        )
        assert group.join("gate-1", "m") == ErrorCode.NONE
        assert group.findings(*gate)["instance ids"].startswith("blocks: gate-1 belongs to m:")
        assert group.join("gate-1") == ErrorCode.UNRELEASED_INSTANCE_ID
        assert group.beat("m", LEAVE_GROUP_STATIC_MEMBER_EPOCH, "gate-1") == ErrorCode.NONE
        assert "instance ids" not in group.findings(*gate)
        assert group.join("gate-1") == ErrorCode.NONE


def test_offsets_decide_where_a_query_starts(group: Group) -> None:
    with ClassicConsumer(group.servers, group.group_id, group.topic, "range") as consumer:
        consumer.await_partitions(2)
        assert group.findings()["offsets"].endswith("not where the members are")
    group.commit(0)
    assert group.findings()["offsets"].startswith(f"warning: {group.topic} 1 have no committed")
    produce(group.servers, group.topic, [b"v"])
    group.commit(0, 7)
    assert group.findings()["offsets"].startswith(
        f"warning: the committed offsets of {group.topic}"
    )
    group.commit(0, 0)
    assert group.findings() == {}
    with unstable_offset(group.servers, group.group_id, group.topic, 1, 1):
        found = group.findings()["offsets"]
    assert found == f"unknown: {group.topic} 1: OffsetFetch returned UNSTABLE_OFFSET_COMMIT"


def test_a_policy_that_forbids_the_conversion_blocks_while_there_are_members(
    strict: EmbeddedKafka, group_id: str, topic_name: str
) -> None:
    group = Group(strict.bootstrap_servers, group_id, topic_name)
    group.commit(0, 0)
    with ClassicConsumer(group.servers, group_id, topic_name, "range") as consumer:
        consumer.await_partitions(2)
        found = group.findings()
        assert set(found) == {"migration policy", "downgrade"}
        assert found["migration policy"].startswith("blocks: group.consumer.migration.policy=disa")
        assert group.join() == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.findings() == {}
    assert group.join() == ErrorCode.NONE


def test_a_full_group_blocks_whichever_protocol_its_members_use(
    strict: EmbeddedKafka, group_id: str, topic_name: str
) -> None:
    group = Group(strict.bootstrap_servers, group_id, topic_name)
    group.commit(0, 0)  # waits for the coordinator of a new broker
    for name in ("m", "n"):
        assert group.join(member_id=name) == ErrorCode.NONE
    assert group.findings()["group size"].endswith("fails with GROUP_MAX_SIZE_REACHED")
    assert group.join() == ErrorCode.GROUP_MAX_SIZE_REACHED
    group.leave("m")
    assert group.findings("--topic", topic_name).keys() <= {"offsets"}
    group.leave("n")


@pytest.mark.long
def test_a_cluster_without_the_feature_blocks(group_id: str, topic_name: str) -> None:
    with EmbeddedKafka(format_arguments=("--feature", "group.version=0")) as kafka:
        group = Group(kafka.bootstrap_servers, group_id, topic_name)
        with ClassicConsumer(group.servers, group_id, topic_name, "range") as consumer:
            consumer.await_partitions(2)
            document = group.preflight()
            assert (document["verdict"], document["group_type"]) == ("blocks", "classic")
            assert "feature group.version is at level 0" in group.findings()["protocol"]
            assert group.join() == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.long
def test_rights_that_are_missing_are_named_with_the_command_that_grants_them(
    secured: SecuredKafka, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    create_topic(secured.kafka.bootstrap_servers, topic_name, 2)
    path = tmp_path / "client.properties"
    settings = secured.login("SCRAM-SHA-512", "nobody")
    path.write_text(render_properties(settings), encoding="latin-1")
    servers = secured.kafka.listener("LOGIN")

    def preflight() -> dict[str, Any]:
        where = ("--bootstrap-server", servers, "--command-config", str(path), "--json")
        done = invoke("preflight", group_id, "--topic", topic_name, *where)
        return {each["check"]: each for each in json.loads(done.stdout)["findings"]}

    found = preflight()
    for check, resource in (("group rights", "--group"), ("topic rights", "--topic")):
        assert found[check]["verdict"] == "blocks"
        assert f"--operation Describe {resource}" in found[check]["cure"]
    assert found["settings"]["verdict"] == "warning", "a query joins without DESCRIBE_CONFIGS"
    secured.allow("nobody", "GROUP", group_id, "READ")
    secured.allow("nobody", "TOPIC", topic_name, "DESCRIBE")
    found = wait_until(
        lambda: (now := preflight())["group rights"]["verdict"] == "ok" and now, what="READ"
    )
    assert found["topic rights"]["verdict"] == "blocks", "READ is missing"
    secured.allow("nobody", "TOPIC", topic_name, "READ")
    wait_until(lambda: preflight()["topic rights"]["verdict"] == "ok", what="READ of the topic")
    plain = secured.kafka.bootstrap_servers
    with ClassicConsumer(plain, group_id, topic_name, "range") as consumer:
        consumer.await_partitions(2)
        found = preflight()
        assert found["migration policy"]["verdict"] == "unknown"
        assert "DESCRIBE_CONFIGS" in found["migration policy"]["cure"]


def test_topic_that_was_meant_is_named(group: Group) -> None:
    found = group.findings("--topic", f"{group.topic}x")["topic rights"]
    assert found.startswith(f"warning: {group.topic}x (did you mean '{group.topic}'?): UNKNOWN_")


def test_pattern_is_checked_with_the_topics_that_it_matches(group: Group) -> None:
    group.commit(0)
    create_topic(group.servers, f"{group.topic}-later", 1)
    document = group.preflight("--pattern", f"{group.topic}.*|__consumer_offsets")
    (rights,) = [each for each in document["findings"] if each["check"] == "topic rights"]
    assert rights["verdict"] == "ok"
    assert f"READ and DESCRIBE on {group.topic}, {group.topic}-later" in rights["reason"]
    assert "a pattern matches __consumer_offsets, internal to Kafka" in rights["reason"]
    nothing = group.findings("--pattern", "no-such-topic-[0-9]+")
    assert "warning: the pattern 'no-such-topic-[0-9]+' matches no topic" in nothing["topic rights"]
    address = ("--bootstrap-server", group.servers)
    for wrong in (("--pattern", "a(?=b)"), ("--pattern", "a", "--topic", "b")):
        done = invoke("preflight", group.group_id, *address, *wrong)
        assert (done.exit_code, "--pattern" in done.output) == (2, True)


def test_the_table_shows_checks_cures_members_and_the_verdict(group: Group) -> None:
    metadata = subscribed_to(group.topic)
    where = ("--bootstrap-server", group.servers)
    with classic_leader(
        group.servers, group.group_id, metadata, CUSTOM, protocol="ours"
    ) as member_id:
        done = invoke("preflight", group.group_id, *where)
    assert done.exit_code == 1
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["CHECK", "VERDICT", "REASON"]
    assert any(row.startswith("assignor: give the consumers one of Kafka's ass") for row in rows)
    assert any(row.startswith(member_id) and row.rstrip().endswith(" 6") for row in rows)
    assert rows[-1] == (
        f"group {group.group_id}: blocks, a member of the consumer protocol cannot join now"
    )
    assert invoke("preflight", "", *where).exit_code == 2


def test_registry_of_the_query_is_checked_beside_its_group(group: Group) -> None:
    with running_stub() as stub:
        stub.answers["/subjects/orders-value/versions/latest"] = [(200, schema(version=1, id=7))]
        given = ("--topic", group.topic, "--schema-registry", stub.url, "--subject")
        found = group.preflight(*given, "orders-value")
        assert (found["verdict"], found["findings"][-1]["verdict"]) == ("ok", "ok")
        assert found["findings"][-1]["reason"].endswith("(id 7): struct<a:int>")
        refused = {"schema_registry": stub.url, "subject": "none-such"}
        view = spark_groups.preflight(group.group_id, group.servers, **refused)
        assert group.preflight(*given, "none-such")["verdict"] == view.verdict.value == "blocks"
        assert "no version latest of subject none-such" in view.findings[-1].reason
