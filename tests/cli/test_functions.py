"""Functions for notebooks: the values of the commands' `--json`, from a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.observation.plain_values import View
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.commands import invoke
from tests.cli.remove_cli_setup import start_members
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce


def printed(servers: str, *words: str) -> Any:
    done = invoke(*words, "--bootstrap-server", servers, "--json")
    assert done.stdout, done.exception
    return json.loads(done.stdout)


def as_json(view: View) -> Any:
    return json.loads(json.dumps(view.to_json()))


@pytest.mark.broker
def test_each_function_returns_what_its_command_prints(
    kafka: EmbeddedKafka, group_id: str, topic_name: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"x", partition=0)] * 3)
    with Cluster(servers) as cluster:
        commit_outside(cluster, group_id, {TopicIdPartition(topic_id(cluster, topic_name), 0): 3})
    listed = {each.group_id: each for each in spark_groups.groups(servers, states=["empty"]).groups}
    (row,) = [e for e in printed(servers, "groups")["groups"] if e["group_id"] == group_id]
    assert (listed[group_id].group_type, listed[group_id].group_state) == (
        row["group_type"],
        row["group_state"],
    )
    lag = spark_groups.lag(group_id, servers, settings={"security.protocol": "PLAINTEXT"})
    assert as_json(lag) == printed(servers, "lag", group_id)
    interval = {"consumer.heartbeat.interval.ms": "6000"}
    changed = spark_groups.config(group_id, servers, changes=interval)
    assert [(each.name, each.after) for each in changed.changed] == list(interval.items())
    assert as_json(spark_groups.config(group_id, servers)) == printed(servers, "config", group_id)
    checked = spark_groups.preflight(group_id, servers, topics=[topic_name])
    assert as_json(checked) == printed(servers, "preflight", group_id, "--topic", topic_name)
    with pytest.raises(OptionsError, match="either topics or a pattern"):
        spark_groups.preflight(group_id, servers, topics=["t"], pattern="t.*")


@pytest.mark.broker
def test_members_are_removed_as_by_the_command(
    kafka: EmbeddedKafka, group_id: str, topic_name: str
) -> None:
    servers = kafka.bootstrap_servers
    start_members(servers, group_id, topic_name, {"one": "gate-1", "two": None})
    with pytest.raises(OptionsError, match="or all_members"):
        spark_groups.remove(group_id, servers)
    foreseen = spark_groups.remove(group_id, servers, all_members=True, is_dry_run=True)
    assert as_json(foreseen) == printed(servers, "remove", group_id, "--all", "--dry-run")
    done = spark_groups.remove(group_id, servers, instance_ids=["gate-1"], member_ids=["two"])
    assert done.is_complete
    assert [each.given for each in done.removals] == ["gate-1", "two"]
    assert not spark_groups.describe(group_id, servers).members
