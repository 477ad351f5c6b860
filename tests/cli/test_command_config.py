"""Commands on secured brokers, with the file that Kafka's own tools take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.state.source import read_state
from spark_groups.spark.state.state_options import StateOptions
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from spark_groups.wire.properties_file import render_properties
from spark_groups.wire.security.security_settings import security_of
from tests.cli.commands import Run
from tests.runtime.members import QueryLike
from tests.secured import SecuredKafka
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce


@pytest.fixture
def described(
    command: Run, secured: SecuredKafka, group_id: str, topic_name: str, tmp_path: Path
) -> Run:
    """Run `describe` on the secured broker, with settings as a file."""

    def run(**settings: str):
        path = tmp_path / "client.properties"
        path.write_text(render_properties(settings), encoding="latin-1")
        servers = secured.kafka.listener("LOGIN")
        file = ("--command-config", str(path))
        return command("describe", group_id, "--json", "--bootstrap-server", servers, *file)

    return run


@pytest.mark.broker
@pytest.mark.long
def test_a_group_is_described_by_who_may(
    secured: SecuredKafka, described: Run, group_id: str, topic_name: str
) -> None:
    settings = secured.login("SCRAM-SHA-512")
    create_topic(secured.kafka.bootstrap_servers, topic_name, 2)
    secured.allow("alice", "GROUP", group_id, "READ")
    secured.allow("alice", "TOPIC", topic_name, "READ")
    servers = secured.kafka.listener("LOGIN")
    query = QueryLike(servers, group_id, topic_name, security=security_of(settings))
    query.run()
    done = described(**settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["members"]
    refused = described(**secured.login("SCRAM-SHA-512", "bob"))
    assert refused.returncode == 1
    assert "GROUP_AUTHORIZATION_FAILED" in refused.stderr
    query.driver.leave()


@pytest.mark.broker
def test_a_group_that_may_not_be_described_does_not_hide_the_others(
    command: Run, secured: SecuredKafka, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    """Carol may list all groups of the cluster, and describe one of two."""
    hidden = f"{group_id}-hidden"
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"x", partition=0)] * 2)
    with Cluster(servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        for each in (group_id, hidden):
            commit_outside(cluster, each, {key: 2})
    secured.allow("carol", "CLUSTER", "kafka-cluster", "DESCRIBE")
    secured.allow("carol", "GROUP", group_id, "DESCRIBE")
    secured.allow("carol", "TOPIC", topic_name, "DESCRIBE")
    login = secured.login("SCRAM-SHA-512", "carol")
    path = tmp_path / "client.properties"
    path.write_text(render_properties(login), encoding="latin-1")
    of_both = ("--bootstrap-server", secured.kafka.listener("LOGIN"), "--command-config", str(path))

    def run(*words: str, exit_code: int = 1) -> dict[str, dict[str, Any]]:
        done = command(*words, "--json", *of_both)
        assert (done.returncode, "Traceback" in done.stderr) == (exit_code, False), done.stderr
        assert f"'{hidden}'" in done.stderr
        assert "GROUP_AUTHORIZATION_FAILED" in done.stderr
        shown = json.loads(done.stdout)
        groups = shown if isinstance(shown, list) else shown["groups"]
        return {each["group_id"]: each for each in groups}

    assert set(run("describe", hidden, group_id)) == {group_id}
    assert group_id in run("describe", "--type", "classic", "--type", "consumer")
    assert set(run("lag", hidden, group_id)) == {group_id}
    checked = run(
        "lag", hidden, group_id, "--check", "--samples", "2", "--interval", "0", exit_code=2
    )
    assert checked[group_id]["verdict"] == "OK"
    options = StateOptions.of(
        {
            "kafka.bootstrap.servers": secured.kafka.listener("LOGIN"),
            **{f"kafka.{name}": value for name, value in login.items()},
        }
    )
    rows = {each.group_id: each for each in read_state(options)}
    assert (rows[group_id].committed_offset, rows[group_id].remark) == (2, None)
    assert rows[hidden].committed_offset is None
    assert "GROUP_AUTHORIZATION_FAILED" in (rows[hidden].remark or "")


@pytest.mark.broker
def test_settings_that_no_code_reads_are_named_once(
    command: Run, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    given = {"client.id": "me", "securty.protocol": "PLAINTEXT", "security.protocol": "PLAINTEXT"}
    path.write_text("\ufeff" + render_properties(given), encoding="utf-8")
    done = command(
        "groups", "--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(path)
    )
    assert done.returncode == 0, done.stderr
    meant = "securty.protocol (did you mean security.protocol?)"
    assert done.stderr == f"spark-groups: {path}: not used here: client.id, {meant}\n"


@pytest.mark.broker
@pytest.mark.long
def test_who_is_refused_is_reported_once(secured: SecuredKafka, described: Run) -> None:
    done = described(**secured.login("PLAIN", password="wrong-word"))
    assert done.returncode == 1
    assert "rejected user 'alice' (PLAIN)" in done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong-word" not in done.stderr


@pytest.mark.broker
@pytest.mark.long
def test_a_wrong_file_is_wrong_usage(secured: SecuredKafka, described: Run) -> None:
    done = described(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
    assert done.returncode == 2
    assert "--command-config" in done.stderr
    assert "GSSAPI" in done.stderr
