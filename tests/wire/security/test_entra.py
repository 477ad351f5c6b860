"""Tokens of Microsoft Entra ID: Azure's own library, with an authority on this machine."""

from __future__ import annotations

import http.server
import json
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from azure.core.pipeline.transport import HttpTransport

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.wire.security.entra import token
from spark_groups.wire.security.sasl import ProviderLogin
from spark_groups.wire.security.token_provider import provided_token
from tests.secured import TokenIssuer, issue

TENANT = "72f988bf-0000-0000-0000-2d7cd011db47"
SECRET = "hush-entra-2718"
SCOPE = "https://flights.servicebus.windows.net/.default"


@dataclass
class Authority:
    """What an authority was asked, and what it answers.

    Args:
        host: Its address, for `entra.authority`.
        asked: The forms of the requests for tokens.
        is_down: Whether it fails.
    """

    host: str
    issuer: TokenIssuer
    asked: list[dict[str, str]] = field(default_factory=list)
    is_down: bool = False

    def settings(self, **changed: str) -> dict[str, str]:
        return {
            "scope": SCOPE,
            "entra.tenant.id": TENANT,
            "entra.client.id": "flights",
            "entra.client.secret": SECRET,
            "entra.authority": self.host,
            **changed,
        }


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """An authority with HTTPS, whose certificate Azure's library trusts."""
    identity = issue("authority", hosts=("localhost",), is_authority=True)
    pem = tmp_path / "authority.pem"
    pem.write_text(identity.pem)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pem))
    # The library pauses between its own retries.
    monkeypatch.setattr(HttpTransport, "sleep", lambda _transport, _duration_s: None)

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here = f"{running.host}/{TENANT}"
            self._answer(
                200,
                {
                    "issuer": f"{here}/v2.0",
                    "authorization_endpoint": f"{here}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{here}/oauth2/v2.0/token",
                },
            )

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = {name: each[0] for name, each in urllib.parse.parse_qs(body).items()}
            running.asked.append(asked)
            if running.is_down:
                self._answer(503, {"error": "temporarily_unavailable"})
            elif asked["client_secret"] == SECRET:
                text = running.issuer.token(aud=asked["scope"])
                answer = {"access_token": text, "token_type": "Bearer", "expires_in": 3599}
                self._answer(200, answer)
            else:
                said = f"AADSTS7000215: Invalid client secret provided: {asked['client_secret']}"
                self._answer(401, {"error": "invalid_client", "error_description": said})

        def _answer(self, status: int, values: dict[str, Any]) -> None:
            content = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    running = Authority(f"https://localhost:{server.server_address[1]}", TokenIssuer())
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join(300)


def test_a_token_of_an_application(authority: Authority) -> None:
    found = token(authority.settings())
    assert found.principal == "flights"
    assert found.text.count(".") == 2
    assert 3500 < found.expires_at_ms / 1000 - time.time() <= 3600
    (asked,) = authority.asked
    assert asked["grant_type"] == "client_credentials"
    assert asked["scope"] == SCOPE
    token(authority.settings())
    assert len(authority.asked) == 2, "a renewed token is a new one"


def test_a_wrong_secret_is_refused_and_not_shown(authority: Authority) -> None:
    settings = authority.settings(**{"entra.client.secret": "wrong-secret-1"})
    login = ProviderLogin(provider="entra", settings=tuple(settings.items()))
    with pytest.raises(AccessError, match="AADSTS7000215") as raised:
        provided_token(login)
    assert "the token provider 'entra'" in str(raised.value)
    assert "wrong-secret-1" not in str(raised.value)


def test_an_authority_that_cannot_be_reached_may_come_back(authority: Authority) -> None:
    settings = authority.settings(**{"entra.authority": "https://localhost:1"})
    login = ProviderLogin(provider="entra", settings=tuple(settings.items()))
    with pytest.raises(BrokerUnreachableError, match=r"'entra': .*[Cc]onnection"):
        provided_token(login)


def test_an_authority_that_fails_may_come_back(authority: Authority) -> None:
    authority.is_down = True
    login = ProviderLogin(provider="entra", settings=tuple(authority.settings().items()))
    with pytest.raises(BrokerUnreachableError, match="'entra'"):
        provided_token(login)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, r"set kafka\.sasl\.oauthbearer\.scope, for Event Hubs https://NAMESPACE\."),
        ({"scope": SCOPE, "entra.tennant": "x"}, r"does not know the option .*entra\.tennant"),
        (
            {"scope": SCOPE, "entra.client.secret": SECRET},
            r"entra\.client\.secret requires .*entra\.tenant\.id, .*entra\.client\.id",
        ),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(AccessError, match=says):
        token(settings)


def test_without_a_secret_azures_default_credential_is_asked(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", "flights")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    found = token({"scope": SCOPE, "entra.authority": authority.host})
    assert found.text.count(".") == 2
    assert authority.asked[0]["client_id"] == "flights"


def test_without_the_library_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(AccessError, match=r"pip install 'spark-groups\[entra\]' on the driver"):
        token({"scope": SCOPE})
