"""Logging in at a real broker: every mechanism, right and wrong, for us and for librdkafka."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from spark_groups.errors import AccessError
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.schemas.wire_messages import LIST_GROUPS
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.security.tokens import TOKENS
from tests.secured import SESSION_LIFETIME_MS, SecuredKafka, jaas
from tests.wire.security.authentication_setup import opened, refused
from workshop.parts.brokers import ANSWER_S, admin
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

EVERY_GROUP = {"states_filter": (), "types_filter": ()}
SCRAM_512 = "SCRAM-SHA-512"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", SCRAM_512])
def test_a_password(secured: SecuredKafka, mechanism: str) -> None:
    servers = secured.kafka.listener("LOGIN")
    assert opened(servers, secured.login(mechanism)) == 1
    said = refused(servers, secured.login(mechanism, password="wrong-word"))
    assert f"rejected user 'alice' ({mechanism})" in said
    assert "kafka.sasl.jaas.config" in said
    assert "wrong-word" not in said


def test_a_token(secured: SecuredKafka) -> None:
    servers = secured.kafka.listener("LOGIN")
    assert opened(servers, secured.tokens()) == 1
    said = refused(servers, secured.tokens(secret="wrong-word"))
    assert "HTTP 401, invalid_client" in said
    assert "wrong-word" not in said


def test_a_token_that_a_broker_does_not_take(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", str(secured.directory))
    servers = secured.kafka.listener("LOGIN")
    path = secured.directory / "token"
    path.write_text(secured.issuer.token(aud="another-service"))
    settings = secured.tokens(sasl__oauthbearer__token__endpoint__url=path.as_uri())
    said = refused(servers, settings)
    assert "rejected the token of 'batch-client' (OAUTHBEARER)" in said
    assert "invalid_token" in said
    assert path.read_text() not in said
    path.write_text(secured.issuer.token())
    assert opened(servers, settings) == 1


def test_a_refused_token_is_not_used_again(secured: SecuredKafka) -> None:
    servers = secured.kafka.listener("LOGIN")
    security = security_of(secured.tokens(sasl__oauthbearer__scope="other"))
    secured.issuer.audience = "another-service"
    try:
        for _ in range(2):
            asked = len(secured.issuer.asked)
            with Cluster(servers, security=security) as cluster, pytest.raises(AccessError):
                cluster.nodes()
            assert 2 <= len(secured.issuer.asked) - asked <= 10
    finally:
        secured.issuer.audience = "kafka"
        TOKENS.forget(security.login)
    with Cluster(servers, security=security) as cluster:
        assert cluster.nodes()


def test_a_token_of_a_provider(secured: SecuredKafka) -> None:
    servers = secured.kafka.listener("SHORT")
    assert opened(servers, secured.provided()) == 1
    said = refused(servers, secured.provided(aud="another-service"))
    assert "rejected the token of the token provider 'tests.provided_tokens:provided'" in said
    assert "invalid_token" in said
    # The broker tolerates 30 s between its clock and the issuer's.
    said = refused(servers, secured.provided(lifetime_s=-3600))
    assert "rejected the token of the token provider" in said
    assert secured.issuer.token().split(".")[0] not in said


def test_a_session_ends_with_its_token(secured: SecuredKafka) -> None:
    host, port = secured.kafka.listener("SHORT").split(":")
    connection = Connection(host, int(port), security=security_of(secured.provided(lifetime_s=15)))
    connection.connect(LONG_S)
    assert connection.is_usable()
    wait_until(lambda: not connection.is_usable(), what="the end of the session")

    def is_closed() -> bool:
        try:
            connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S)
        except RequestError:
            return True
        return False

    assert not is_closed()
    wait_until(is_closed, what="the broker to end the session")


def test_a_mechanism_that_is_not_offered(secured: SecuredKafka) -> None:
    servers = secured.kafka.listener("OPENLOGIN")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas("scram.Scram", username="alice", password="x"),
    }
    said = refused(servers, settings)
    assert "does not offer kafka.sasl.mechanism=SCRAM-SHA-256; it offers PLAIN, SCRAM" in said


@pytest.mark.parametrize(
    ("listener", "protocol", "says"),
    [
        ("PLAINTEXT", "SASL_PLAINTEXT", "is a listener without SASL.*protocol to PLAINTEXT"),
        ("TLS", "SASL_SSL", "is a listener without SASL.*protocol to SSL"),
        ("TLS", "SASL_PLAINTEXT", "is a TLS listener.*protocol is SASL_PLAINTEXT"),
        ("TLS", "PLAINTEXT", "is a TLS listener.*protocol is PLAINTEXT"),
        ("PLAINTEXT", "SASL_SSL", "does not speak TLS: name the SSL or SASL_SSL listener"),
        ("PLAINTEXT", "SSL", "does not speak TLS"),
        ("OPENLOGIN", "SASL_SSL", "does not speak TLS"),
        (
            "OPENLOGIN",
            "PLAINTEXT",
            "requires authentication.*it to SASL_PLAINTEXT.*of PLAIN, SCRAM-SHA-512",
        ),
        ("LOGIN", "SSL", "requires authentication.*it to SASL_SSL.*OAUTHBEARER"),
    ],
)
def test_a_listener_of_another_kind(
    secured: SecuredKafka, listener: str, protocol: str, says: str
) -> None:
    servers = secured.kafka.bootstrap_servers
    if listener != "PLAINTEXT":
        servers = secured.kafka.listener(listener)
    settings = secured.login("PLAIN") | {"security.protocol": protocol}
    used = {
        name: value
        for name, value in settings.items()
        if ("SSL" in protocol or not name.startswith("ssl."))
        and ("SASL" in protocol or not name.startswith("sasl."))
    }
    assert re.search(says, refused(servers, used))


def test_a_session_ends_before_the_broker_ends_it(secured: SecuredKafka) -> None:
    host, port = secured.kafka.listener("SHORT").split(":")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": secured.login("PLAIN")["sasl.jaas.config"],
    }
    security = security_of(settings)
    connection = Connection(host, int(port), security=security)
    connection.connect(LONG_S)
    assert connection._usable_until < time.monotonic() + SESSION_LIFETIME_MS / 1000
    wait_until(lambda: not connection.is_usable(), what="the end of the session")
    connection.close()
    with Cluster(f"{host}:{port}", security=security) as cluster:
        until = time.monotonic() + 1.5 * SESSION_LIFETIME_MS / 1000
        wait_until(lambda: cluster.list_groups() is not None and time.monotonic() > until)


def test_an_open_session_is_used_again(secured: SecuredKafka) -> None:
    host, port = secured.kafka.listener("LOGIN").split(":")
    connection = Connection(host, int(port), security=security_of(secured.login(SCRAM_512)))
    connection.connect(LONG_S)
    for _ in range(3):
        assert connection.is_usable()
        connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S)
    connection.close()


@pytest.mark.broker
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_with_signs_that_saslprep_would_change_logs_in_as_in_java(
    secured: SecuredKafka, mechanism: str
) -> None:
    user, password = f"signs-{mechanism.lower()}", "\u00adp\u00bde\u0301\u00a0\U0001f642"
    kind = ScramMechanism[mechanism.replace("-", "_")]
    change = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(kind, 4096), password.encode(), b"some-salt"
    )
    client = admin(secured.kafka.bootstrap_servers)
    client.alter_user_scram_credentials([change])[user].result(ANSWER_S)
    settings = secured.login(mechanism, user, password)
    servers = secured.kafka.listener("LOGIN")
    wait_until(lambda: logs_in(servers, settings))


def logs_in(servers: str, settings: Mapping[str, str]) -> bool:
    """Return whether the broker knows the user by now."""
    try:
        return opened(servers, settings) == 1
    except AccessError as error:
        return "impostor" in str(error) and pytest.fail(str(error))
