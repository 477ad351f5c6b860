"""Secrets in the open are warned of, once."""

from __future__ import annotations

import pytest

from spark_groups.wire.security import warnings as security_warnings
from spark_groups.wire.security.sasl import Login, Mechanism, PasswordLogin, TokenLogin
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.security.warnings import warn_of_open_secrets

PLAIN = PasswordLogin(Mechanism.PLAIN, "alice", "hush-123456")
SCRAM = PasswordLogin(Mechanism.SCRAM_SHA_512, "alice", "hush-123456")


def tokens(url: str) -> TokenLogin:
    return TokenLogin(endpoint_url=url, client_id="flights", client_secret="hush-123456")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_warnings, "_said", set())


@pytest.mark.parametrize(
    ("protocol", "login", "says"),
    [
        ("SASL_PLAINTEXT", PLAIN, "kafka.security.protocol to SASL_SSL"),
        ("SASL_SSL", tokens("HTTP://login.example.com/token?x=1"), "an https:// address"),
    ],
)
def test_a_secret_in_the_open_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, protocol: str, login: Login, says: str
) -> None:
    for _ in range(2):
        warn_of_open_secrets(Security(protocol, login=login))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert says in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    "security",
    [
        None,
        PLAINTEXT,
        Security("SASL_SSL", login=PLAIN),
        Security("SASL_PLAINTEXT", login=SCRAM),
        Security("SASL_SSL", login=tokens("https://login.example.com/token")),
        Security("SASL_SSL", login=tokens("file:///run/secrets/token")),
    ],
)
def test_what_is_secured_is_not(caplog: pytest.LogCaptureFixture, security: Security) -> None:
    warn_of_open_secrets(security)
    assert caplog.text == ""
