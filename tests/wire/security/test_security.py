"""The one value for security, and the settings that librdkafka receives."""

from __future__ import annotations

import pickle
import time

import pytest

from spark_groups.errors import OptionsError
from spark_groups.wire.security import security as security_warnings
from spark_groups.wire.security.sasl import (
    Login,
    Mechanism,
    PasswordLogin,
    ProviderLogin,
    TokenLogin,
)
from spark_groups.wire.security.security import PLAINTEXT, PROTOCOLS, Security, warn_of_open_secrets
from spark_groups.wire.security.tls import Tls
from tests.secured import CLIENT_SECRET, token_issuer

SECRET = "hush-123456"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_goes_with_its_login(protocol: str) -> None:
    login = PasswordLogin(Mechanism.PLAIN, "alice", SECRET)
    is_sasl = protocol.startswith("SASL")
    matching = Security(protocol, login=login if is_sasl else None)
    assert matching.uses_tls == ("SSL" in protocol.removeprefix("SASL_"))
    with pytest.raises(OptionsError, match=f"{protocol} (requires a|does not use a) login"):
        Security(protocol, login=None if is_sasl else login)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(OptionsError, match="'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT"):
        Security("TLS")


def test_the_principal_is_named_if_known() -> None:
    alice = PasswordLogin(Mechanism.SCRAM_SHA_512, "alice", SECRET)
    assert Security("SASL_SSL", login=alice).principal == "User:alice"
    assert Security().principal == Security("SSL").principal == "User:ANONYMOUS"
    certified = Tls(certificate_pem="c", key_pem="k")
    assert Security("SSL", certified).principal == ""
    tokens = TokenLogin(endpoint_url="https://x/token", client_id="c", client_secret=SECRET)
    assert Security("SASL_SSL", login=tokens).principal == ""


def test_it_travels_whole_and_shows_nothing() -> None:
    login = TokenLogin(endpoint_url="https://x/token", client_id="c", client_secret=SECRET)
    tls = Tls(trusted_pem=f"{SECRET}1", certificate_pem=f"{SECRET}2", key_pem=f"{SECRET}3")
    security = Security("SASL_SSL", tls, login)
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(pickle.loads(pickle.dumps(security)))
    assert SECRET not in repr(security) + str(security) + repr(tls) + repr(login)
    settings = security.librdkafka_settings()
    assert settings["ssl.key.pem"] == f"{SECRET}3"
    assert settings["sasl.mechanism"] == "OAUTHBEARER"


def test_librdkafka_is_given_the_same_tokens() -> None:
    with token_issuer() as issuer:
        login = TokenLogin(
            endpoint_url=issuer.url,
            client_id="batch-client",
            client_secret="token-secret-31415",
            extensions=(("logicalCluster", "lkc-1"),),
        )
        give = Security("SASL_PLAINTEXT", login=login).librdkafka_settings()["oauth_cb"]
        text, expires_at_s, principal, extensions = give("")
        assert give("")[0] == text
        assert len(issuer.asked) == 1
        assert expires_at_s > 0
        assert (principal, extensions) == ("batch-client", {"logicalCluster": "lkc-1"})


def test_librdkafka_is_given_the_tokens_of_a_provider() -> None:
    settings = {"test.client.secret": CLIENT_SECRET, "test.lifetime": "300"}
    with token_issuer() as issuer:
        settings["test.url"] = issuer.url.replace("/token", "/provided")
        login = ProviderLogin(
            provider="tests.provided_tokens:provided",
            settings=tuple(settings.items()),
            extensions=(("logicalCluster", "lkc-1"),),
        )
        security = Security("SASL_PLAINTEXT", login=login)
        give = security.librdkafka_settings()["oauth_cb"]
        text, expires_at_s, principal, extensions = give("")
        assert give("")[0] == text
        assert len(issuer.provided) == 1
        assert 290 < expires_at_s - time.time() < 310
        assert (principal, extensions) == ("provided", {"logicalCluster": "lkc-1"})


PLAIN = PasswordLogin(Mechanism.PLAIN, "alice", "hush-123456")
SCRAM = PasswordLogin(Mechanism.SCRAM_SHA_512, "alice", "hush-123456")


def tokens(url: str) -> TokenLogin:
    return TokenLogin(endpoint_url=url, client_id="flights", client_secret="hush-123456")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_warnings, "_warned", set())


@pytest.mark.parametrize(
    ("protocol", "login", "says"),
    [
        ("SASL_PLAINTEXT", PLAIN, "kafka.security.protocol to SASL_SSL"),
        ("SASL_PLAINTEXT", tokens("https://login.example.com/t"), "sends the token unencrypted"),
        ("SASL_PLAINTEXT", ProviderLogin(provider="msk"), "sends the token unencrypted"),
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
def test_secured_settings_cause_no_warning(
    caplog: pytest.LogCaptureFixture, security: Security
) -> None:
    warn_of_open_secrets(security)
    assert caplog.text == ""
