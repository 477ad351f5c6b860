"""`spark-groups delete` and `delete-offsets` on a real broker."""

from __future__ import annotations

import json

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.brokers import Row, create_topic, produce
from tests.ops.commands import invoke
from tests.runtime.members import queries
from tests.wire.test_cluster import topic_id


@pytest.mark.broker
def test_offsets_and_then_the_group_are_deleted(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    address = ("--bootstrap-server", servers)
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        commit_outside(cluster, group_id, dict.fromkeys(keys, 5))
        asked = ("delete-offsets", group_id, "--topic", f"{topic_name}:1", *address)
        foreseen = invoke(*asked, "--dry-run")
        assert (foreseen.exit_code, "Successful" in foreseen.stdout) == (0, True)
        assert "No action is performed" in foreseen.stdout
        assert set(cluster.fetch_all_offsets(group_id).offsets) == set(keys)
        first = invoke(*asked)
        assert (first.exit_code, first.stdout.split()[-3:]) == (0, [topic_name, "1", "Successful"])
        assert set(cluster.fetch_all_offsets(group_id).offsets) == {keys[0]}
        second = invoke(*asked, "--topic", "~", "--json")
        statuses = [each["error"] for each in json.loads(second.stdout)["offsets"]]
        assert (second.exit_code, statuses) == (1, [None, "UNKNOWN_TOPIC_OR_PARTITION"])
    foreseen = invoke("delete", group_id, f"{group_id}-not", *address, "--dry-run", "--json")
    errors = [each["error"] for each in json.loads(foreseen.stdout)["groups"]]
    assert (foreseen.exit_code, errors) == (1, [None, "GROUP_ID_NOT_FOUND"])
    assert invoke("delete", group_id, *address).stdout == f"group '{group_id}': deleted\n"
    again = invoke("delete", group_id, *address)
    assert again.exit_code == 1
    assert "could not be deleted due to: GROUP_ID_NOT_FOUND" in again.stdout


def test_a_topic_that_is_malformed_is_wrong_usage() -> None:
    address = ("--bootstrap-server", "localhost:1")
    done = invoke("delete-offsets", "g", "--topic", "flights:", *address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is neither TOPIC nor TOPIC:0,1,2" in done.stderr


@pytest.mark.broker
def test_what_members_read_is_foreseen_to_be_refused(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"x", partition=0)])
    address = ("--bootstrap-server", servers, "--json")
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()
        for dry_run in (("--dry-run",), ()):
            asked = ("delete-offsets", group_id, "--topic", topic_name, *address, *dry_run)
            done = invoke(*asked)
            statuses = [each["error"] for each in json.loads(done.stdout)["offsets"]]
            assert (done.exit_code, statuses) == (1, ["GROUP_SUBSCRIBED_TO_TOPIC"])
            done = invoke("delete", group_id, *address, *dry_run)
            errors = [each["error"] for each in json.loads(done.stdout)["groups"]]
            assert (done.exit_code, errors) == (1, ["NON_EMPTY_GROUP"])
