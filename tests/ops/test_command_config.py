"""Commands on secured brokers, with the file that Kafka's own tools take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_groups.wire.properties_file import render_properties
from spark_groups.wire.security.settings import security_of
from tests.brokers import create_topic
from tests.ops.commands import Run
from tests.runtime.members import QueryLike
from tests.secured import SecuredKafka


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
