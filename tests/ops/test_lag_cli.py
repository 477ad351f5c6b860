"""`spark-groups lag` on a real broker."""

from __future__ import annotations

import json

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.brokers import Row, create_topic, produce
from tests.ops.commands import invoke
from tests.ops.test_cli import kafkas_own
from tests.wire.test_cluster import topic_id


@pytest.mark.broker
def test_lag_is_that_of_kafkas_own_tool_and_the_exit_code_says_whether_it_is_too_much(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=each % 2) for each in range(20)])
    asked = ("lag", group_id, "--bootstrap-server", servers)
    checked = (*asked, "--check", "--samples", "2", "--interval", "0.1")
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        commit_outside(cluster, group_id, {keys[0]: 4, keys[1]: 10})
        plain = json.loads(invoke(*asked, "--json").stdout)
        expected = kafkas_own(kafka, group_id)
        behind = invoke(*checked)
        tolerated = invoke(*checked, "--allowed-lag", "6")
        commit_outside(cluster, group_id, {keys[0]: 10})
        caught_up = invoke(*checked, "--json")
    (group,) = plain["groups"]
    assert {
        each["partition"]: tuple(
            str(each[name]) for name in ("committed_offset", "log_end_offset", "lag")
        )
        for each in group["partitions"]
    } == {partition: values[:3] for partition, values in expected.items()}
    assert (group["lag"], group["verdict"]) == (6, None)
    assert (behind.exit_code, tolerated.exit_code, caught_up.exit_code) == (2, 0, 0)
    assert "STALL: The committed offset does not move, and there is lag." in behind.stdout
    assert json.loads(caught_up.stdout)["groups"][0]["verdict"] == "OK"


def test_what_cannot_be_read_is_no_ok() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = invoke("lag", "g", "--check", "--bootstrap-server", address, "--timeout", "0.5")
    assert (done.exit_code, done.stdout) == (2, "")
    assert address in done.stderr
