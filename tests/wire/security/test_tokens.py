"""Tokens from an endpoint and from a file."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from spark_groups.errors import AccessError, BrokerUnreachableError, OptionsError
from spark_groups.wire.security.sasl import TokenLogin
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.token_endpoint import UNKNOWN_LIFETIME_S
from spark_groups.wire.security.tokens import NEVER_ACCEPTED_S, REFUSED_S, TokenStore
from tests.secured import CLIENT_ID, CLIENT_SECRET, TokenIssuer, token_issuer
from tests.wire.listener import await_end, listening
from workshop.parts.waiting import LONG_S, SOON_S


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as running:
        yield running


@pytest.fixture
def login(issuer: TokenIssuer) -> TokenLogin:
    return TokenLogin(
        endpoint_url=issuer.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, scope="read"
    )


@contextmanager
def answering(login: TokenLogin, status: bytes, body: bytes) -> Iterator[TokenLogin]:
    """Serve one answer, and give the login at that endpoint."""

    def script(peer) -> None:
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await_end(peer)

    with listening(script) as port:
        yield replace(login, endpoint_url=f"http://127.0.0.1:{port}/token")


def test_a_token_is_kept_until_it_is_nearly_over(issuer: TokenIssuer, login: TokenLogin) -> None:
    store = TokenStore()
    first = store.token(login, Tls(), LONG_S)
    assert store.token(login, Tls(), LONG_S) == first
    assert issuer.asked == [{"grant_type": ["client_credentials"], "scope": ["read"]}]
    assert first.text not in repr(first)
    assert time.time() + 290 < first.expires_at_s < time.time() + 310
    store.forget(login)
    store.token(login, Tls(), LONG_S)
    assert len(issuer.asked) == 2
    issuer.lifetime_s = 0.0
    store.forget(login)
    assert store.token(login, Tls(), LONG_S) != store.token(login, Tls(), LONG_S)


def test_a_wrong_secret_is_refused_and_not_shown(login: TokenLogin) -> None:
    wrong = replace(login, client_secret="wrong-secret-1")
    with pytest.raises(AccessError) as raised:
        TokenStore().token(wrong, Tls(), LONG_S)
    said = str(raised.value)
    assert (
        "/token did not issue a token: HTTP 401, invalid_client, who is it?; check kafka.sasl"
        in said
    )
    assert "wrong-secret-1" not in said


def test_secret_that_an_endpoint_repeats_in_another_form_is_not_shown(login: TokenLogin) -> None:
    secret = "hush+hush/hush="
    login = replace(login, client_secret=secret)
    basic = base64.b64encode(f"{CLIENT_ID}:{secret}".encode()).decode()
    for form in (quote(secret, safe=""), basic, "x" * 490 + secret):
        body = json.dumps({"error": "no", "error_description": f"bad: {form}"}).encode()
        with answering(login, b"401 No", body) as here, pytest.raises(AccessError) as raised:
            TokenStore().token(here, Tls(), LONG_S)
        said = str(raised.value)
        assert "bad: " in said
        assert "hush" not in said
        assert basic[-16:-4] not in said


def test_what_an_endpoint_says_cannot_move_a_cursor(login: TokenLogin) -> None:
    body = b'{"error": "\\u001b[2J\\r\\nlog line", "error_description": "%s"}' % (b"x" * 9_000)
    with answering(login, b"400 Bad", body) as here, pytest.raises(AccessError) as raised:
        TokenStore().token(here, Tls(), LONG_S)
    said = str(raised.value)
    assert not {"\x1b", "\r", "\n"} & set(said)
    assert len(said) < 1_500


def test_a_redirect_would_carry_the_secret_away(login: TokenLogin) -> None:
    elsewhere = replace(login, endpoint_url=login.endpoint_url.replace("/token", "/elsewhere"))
    with pytest.raises(AccessError, match="did not issue a token: HTTP 302"):
        TokenStore().token(elsewhere, Tls(), LONG_S)


def test_an_endpoint_that_is_down_may_come_back(login: TokenLogin) -> None:
    down = replace(login, endpoint_url=login.endpoint_url.replace("/token", "/down"))
    with pytest.raises(BrokerUnreachableError, match="did not issue a token: HTTP 503"):
        TokenStore().token(down, Tls(), LONG_S)
    unreachable = replace(login, endpoint_url="http://127.0.0.1:1/token?key=secret-2")
    with pytest.raises(BrokerUnreachableError, match=r"1:1/token cannot be") as raised:
        TokenStore().token(unreachable, Tls(), LONG_S)
    assert "secret-2" not in str(raised.value)


@pytest.mark.parametrize("address", ["http://a..b/token", "http://[::1/token", "http://h/t\u00f6k"])
def test_an_endpoint_without_an_address_is_not_taken_for_a_silent_one(
    login: TokenLogin, address: str
) -> None:
    with pytest.raises(
        AccessError, match=r"is not a valid address: correct .*token\.endpoint\.url"
    ):
        TokenStore().token(replace(login, endpoint_url=address), Tls(), LONG_S)


def test_an_endpoint_that_says_nothing_ends_at_the_deadline(login: TokenLogin) -> None:
    with listening(await_end) as port:
        silent = replace(login, endpoint_url=f"http://127.0.0.1:{port}/token")
        began_at = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match=r"did not answer in time|cannot be"):
            TokenStore().token(silent, Tls(), 0.3)
        assert time.monotonic() - began_at < SOON_S


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"not json", b"[]", b'{"access_token": "a\\nb"}'),
        pytest.param(b"[" * 4000, id="nested deeply"),
    ],
)
def test_an_answer_without_a_token_is_refused(login: TokenLogin, body: bytes) -> None:
    with (
        answering(login, b"200 OK", body) as here,
        pytest.raises(AccessError, match=r"no access_token|no valid token"),
    ):
        TokenStore().token(here, Tls(), LONG_S)


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path, issuer: TokenIssuer) -> None:
    path = tmp_path / "token"
    login = TokenLogin(endpoint_url=path.as_uri().replace("file:", "FILE:"))
    with pytest.raises(AccessError, match=r"token cannot be read: No such file.*endpoint\.url"):
        TokenStore().token(login, Tls(), LONG_S)
    store = TokenStore()
    for expected_s, text in ((60.0, issuer.token(exp=time.time() + 60)), (300.0, "opaque")):
        path.write_text(text + "\n")
        found = store.token(login, Tls(), LONG_S)
        assert found.text == text
        assert abs(found.expires_at_s - time.time() - expected_s) < 20
    assert UNKNOWN_LIFETIME_S == 300.0


def test_id_and_secret_are_encoded_in_the_header_on_demand(issuer: TokenIssuer) -> None:
    """RFC 6749 encodes both, so that a colon in the id does not end it."""
    issuer.credentials = "flights%3Aread:a%2B100%25+b"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.credentials.client.id": "flights:read",
        "sasl.oauthbearer.client.credentials.client.secret": "a+100% b",
    }
    urlencode = "sasl.oauthbearer.header.urlencode"
    login = security_of(settings | {urlencode: "True"}).login
    assert isinstance(login, TokenLogin)
    assert TokenStore().token(login, Tls(), LONG_S).principal == "flights:read"
    plain = security_of(settings).login
    assert isinstance(plain, TokenLogin)
    with pytest.raises(AccessError, match="invalid_client"):
        TokenStore().token(plain, Tls(), LONG_S)
    with pytest.raises(OptionsError, match=f"{urlencode}: 'yes' is neither true nor false"):
        security_of(settings | {urlencode: "yes"})


def test_refused_token_is_asked_for_again_for_a_while(
    login: TokenLogin, caplog: pytest.LogCaptureFixture
) -> None:
    store = TokenStore()
    assert store.refused(login, "b1 rejected the token: unknown key", 10.0)
    assert store.refused(login, "b1 rejected the token: unknown key", 10.0 + NEVER_ACCEPTED_S / 2)
    assert not store.refused(login, "b1 rejected the token: no", 10.0 + NEVER_ACCEPTED_S)
    store.accepted(login)
    assert store.refused(login, "b2 rejected the token: unknown key", 100.0)
    assert store.refused(login, "b2 rejected the token: unknown key", 99.0 + REFUSED_S)
    store.accepted(login)
    assert store.refused(login, "b3 rejected the token: unknown key", 101.0 + REFUSED_S)
    assert not store.refused(login, "b3 rejected the token: no", 101.0 + 2 * REFUSED_S)
    said = [each.getMessage() for each in caplog.records]
    assert [each[:2] for each in said] == ["b1", "b2", "b3"]
    assert said[1].endswith("unknown key. Other tokens are tried for 30 s")
