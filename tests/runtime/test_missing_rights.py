"""Every right that a member needs, taken away: one error that names it, at once."""

from __future__ import annotations

import re
import shlex
import time

import pytest

from spark_groups.errors import GroupError
from spark_groups.group.member.grant_command import Identity
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.security_settings import security_of
from tests.runtime.members import QueryLike
from tests.secured import SecuredKafka
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]


@pytest.fixture
def topic(secured: SecuredKafka, topic_name: str) -> str:
    create_topic(secured.kafka.bootstrap_servers, topic_name, 2)
    produce(secured.kafka.bootstrap_servers, topic_name, [Row(b"v", partition=0)])
    return topic_name


@pytest.fixture
def security(secured: SecuredKafka) -> Security:
    return security_of(secured.login("SCRAM-SHA-512"))


def refusal(query: QueryLike) -> str:
    """Return how the query fails, which it must do for good and soon."""
    began_at = time.monotonic()
    try:
        with pytest.raises(GroupError) as raised:
            wait_until(lambda: query.run() and False, LONG_S, what="a refusal")
        assert time.monotonic() - began_at < SOON_S
        with pytest.raises(GroupError):
            query.run()
        return str(raised.value)
    finally:
        query.driver.leave(2.0)


def member(secured: SecuredKafka, security: Security, group_id: str, topics: str) -> QueryLike:
    servers = secured.kafka.listener("LOGIN")
    identity = Identity(principal=security.principal, bootstrap_servers=(servers,))
    member = {"identity": identity}
    return QueryLike(servers, group_id, topics, security=security, member=member)


def grant(secured: SecuredKafka, error: str) -> None:
    """Do what an error says, with Kafka's own tool, as an administrator on this machine."""
    found = re.search(r"kafka-acls\.sh (.*?)\)?$", error)
    assert found is not None, error
    arguments = shlex.split(found[1])
    assert arguments[:2] == ["--bootstrap-server", secured.kafka.listener("LOGIN")]
    assert arguments[2:4] == ["--command-config", "admin.properties"]
    servers = ("--bootstrap-server", secured.kafka.bootstrap_servers)
    secured.kafka.run_tool("org.apache.kafka.tools.AclCommand", *servers, *arguments[4:])


def test_the_rights_that_errors_name_are_those_that_are_missing(
    secured: SecuredKafka, security: Security, group_id: str, topic: str
) -> None:
    # Which of the two is refused first is for the answers to say.
    for _ in ("the group", "the topic"):
        said = refusal(member(secured, security, group_id, topic))
        assert "the principal User:alice needs READ and DESCRIBE on" in said
        grant(secured, said)
    query = member(secured, security, group_id, topic)
    assert query.plan_rows().ranges
    query.driver.leave()


@pytest.fixture
def granted(secured: SecuredKafka, group_id: str, topic: str) -> None:
    """Everything that a member needs."""
    secured.allow("alice", "GROUP", group_id, "READ")
    secured.allow("alice", "TOPIC", topic, "READ")


def test_with_every_right_it_reads(
    secured: SecuredKafka, security: Security, group_id: str, topic: str, granted: None
) -> None:
    query = member(secured, security, group_id, topic)
    assert query.plan_rows().ranges
    query.commit_all()
    query.driver.leave()


def test_no_right_on_the_group(
    secured: SecuredKafka, security: Security, group_id: str, topic: str
) -> None:
    secured.allow("alice", "TOPIC", topic, "READ")
    said = refusal(member(secured, security, group_id, topic))
    assert group_id in said
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert "the principal User:alice needs READ and DESCRIBE on the group" in said


def test_describe_without_read_on_the_group(
    secured: SecuredKafka, security: Security, group_id: str, topic: str
) -> None:
    secured.allow("alice", "TOPIC", topic, "READ")
    secured.allow("alice", "GROUP", group_id, "DESCRIBE")
    said = refusal(member(secured, security, group_id, topic))
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert "READ" in said


def test_read_without_describe_on_the_group(
    secured: SecuredKafka, security: Security, group_id: str, topic: str, granted: None
) -> None:
    secured.allow("alice", "GROUP", group_id, "DESCRIBE", deny=True)
    said = refusal(member(secured, security, group_id, topic))
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert "DESCRIBE" in said


def test_no_right_on_one_of_the_topics(
    secured: SecuredKafka, security: Security, group_id: str, topic: str, granted: None
) -> None:
    hidden = f"{topic}-hidden"
    create_topic(secured.kafka.bootstrap_servers, hidden, 1)
    said = refusal(member(secured, security, group_id, f"{topic},{hidden}"))
    assert "TOPIC_AUTHORIZATION_FAILED" in said
    assert hidden in said
    assert "DESCRIBE" in said


def test_describe_without_read_on_a_topic(
    secured: SecuredKafka, security: Security, group_id: str, topic: str
) -> None:
    secured.allow("alice", "GROUP", group_id, "READ")
    secured.allow("alice", "TOPIC", topic, "DESCRIBE")
    said = refusal(member(secured, security, group_id, topic))
    assert "TOPIC_AUTHORIZATION_FAILED" in said
    assert f"of topic {topic}" in said
    assert "the principal User:alice needs READ" in said
    assert f"--topic {topic}" in said


def test_a_right_that_is_taken_away_later(
    secured: SecuredKafka, security: Security, group_id: str, topic: str, granted: None
) -> None:
    query = member(secured, security, group_id, topic)
    query.plan_rows()
    secured.allow("alice", "TOPIC", topic, "READ", deny=True)
    said = refusal(query)
    assert "TOPIC_AUTHORIZATION_FAILED" in said
    assert topic in said


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_fails_a_query_at_once(
    secured: SecuredKafka, group_id: str, topic: str, user: str
) -> None:
    wrong = security_of(secured.login("SCRAM-SHA-512", user, "wrong-word"))
    said = refusal(member(secured, wrong, group_id, topic))
    assert f"rejected user {user!r} (SCRAM-SHA-512)" in said
    assert "wrong-word" not in said
