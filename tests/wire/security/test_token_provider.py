"""Token providers: found by name, called with their settings, and what their failures mean."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.sasl import ProviderLogin
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.security.token_provider import ADAPTERS, find_provider, provided_token
from tests.secured import CLIENT_SECRET, SecuredKafka

SECRET = "hush-123456"
LOGIN = ProviderLogin(
    provider="made_provider:token",
    settings=(("client.secret", SECRET), ("scope", "kafka")),
    extensions=(("logicalCluster", "lkc-1"), ("poolId", "p-1")),
)
Make = Callable[[Callable[[Mapping[str, str]], Any]], None]


def soon_ms() -> int:
    return int((time.time() + 300) * 1000)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Let a function be the provider of `LOGIN`."""

    def made(provider: Callable[[Mapping[str, str]], Any]) -> None:
        module = ModuleType("made_provider")
        module.token = provider  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made_provider", module)

    return made


def test_a_provider_gets_its_settings_read_only(make: Make) -> None:
    given = []

    def provider(settings: Mapping[str, str]) -> BearerToken:
        with pytest.raises(TypeError):
            settings["scope"] = "other"  # type: ignore[index]
        given.append(dict(settings))
        return BearerToken("abc", soon_ms(), "alice", (("poolId", "p-2"),))

    make(provider)
    found = provided_token(LOGIN)
    assert given == [{"client.secret": SECRET, "scope": "kafka"}]
    assert (found.text, found.principal) == ("abc", "alice")
    assert found.extensions == (("logicalCluster", "lkc-1"), ("poolId", "p-2"))
    assert SECRET not in repr(LOGIN)


def test_a_pair_is_a_token(make: Make) -> None:
    expires_at_ms = soon_ms()
    make(lambda _: ("abc", expires_at_ms))
    assert provided_token(LOGIN).expires_at_ms == expires_at_ms


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("abc", "returned a value of the type str: return a spark_groups.BearerToken, or a pair"),
        (None, "returned a value of the type NoneType"),
        (("a\nb", 1), "returned an invalid token: the token is not a text of printable"),
        (("abc", 1_795_000_000), "returned the expiry 1795000000: return milliseconds since 1970"),
    ],
)
def test_a_wrong_answer_is_refused(make: Make, answer: Any, says: str) -> None:
    make(lambda _: answer)
    with pytest.raises(AccessError, match=says) as raised:
        provided_token(LOGIN)
    assert "the token provider 'made_provider:token'" in str(raised.value)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (AccessError("no role"), AccessError),
        (KeyError("region"), AccessError),
        (ImportError("No module named 'x'"), AccessError),
        (BrokerUnreachableError("later"), BrokerUnreachableError),
        (OSError("connection refused"), BrokerUnreachableError),
        (TimeoutError(), BrokerUnreachableError),
        (SystemExit(2), BrokerUnreachableError),
        (type("BotoCoreError", (Exception,), {})("throttled"), BrokerUnreachableError),
    ],
    ids=repr,
)
def test_only_what_may_pass_is_retried(
    make: Make, failure: BaseException, kind: type[Exception]
) -> None:
    def provider(_: Mapping[str, str]) -> BearerToken:
        raise failure

    make(provider)
    with pytest.raises(kind, match=r"^the token provider 'made_provider:token'"):
        provided_token(LOGIN)


def test_an_error_repeats_no_secret(make: Make) -> None:
    def provider(settings: Mapping[str, str]) -> BearerToken:
        jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln"
        raise OSError(f"{settings['client.secret']}\n\x1b[2J {jwt} {'x' * 9_000}")

    make(provider)
    with pytest.raises(BrokerUnreachableError) as raised:
        provided_token(LOGIN)
    said = str(raised.value)
    assert "failed with OSError: *** ?[2J *** xxx" in said
    assert SECRET not in said
    assert len(said) < 700
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "written",
    [
        lambda secret: f"POST https://idp.example.com/t?client_secret={quote(secret, safe='')}&a=b",
        lambda secret: f"Authorization: Basic {b64encode(f'me:{secret}'.encode()).decode()}",
        lambda secret: "x" * 496 + secret,
        lambda secret: secret.replace(" ", "\n   "),
        lambda secret: json.dumps({"client_secret": secret}),
    ],
)
def test_an_error_repeats_no_secret_in_another_form(
    make: Make, written: Callable[[str], str]
) -> None:
    secret = "hush 123/456+é"

    def provider(settings: Mapping[str, str]) -> BearerToken:
        raise OSError(written(settings["client.secret"]))

    make(provider)
    login = replace(LOGIN, settings=(("client.secret", secret),))
    with pytest.raises(BrokerUnreachableError) as raised:
        provided_token(login)
    said = str(raised.value)
    assert "***" in said or said.endswith("...")
    for part in ("hush", "123", "456", "aHVzaC", "MTIzLz"):
        assert part not in said


def test_an_entry_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "tokens_of_ours-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tokens-of-ours\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[spark_groups.token_providers]\nours = tokens_of_ours:provider.token\n"
    )
    (tmp_path / "tokens_of_ours.py").write_text(
        "class provider:\n    @staticmethod\n    def token(settings):\n        return 'abc', 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_provider("ours")({}) == ("abc", 5)
    with pytest.raises(ValueError, match="are entra, msk, ours"):
        find_provider("theirs")


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_adapters_of_this_package_are_found(name: str) -> None:
    assert callable(find_provider(name))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mks", r"'mks' is no token provider: .*are entra, msk.*package\.module:function"),
        ("no.such:token", r"importing no\.such failed with ModuleNotFoundError: No module named"),
        ("no.such:token", "Install the package on the driver and on every executor"),
        ("json:no_such", "json has no function no_such"),
        ("json:decoder", "json has no function decoder"),
        ("json:", "json has no function"),
        (":token", "importing  failed with ValueError"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        find_provider(name)


@pytest.mark.broker
# It shares the broker of that file.
@pytest.mark.xdist_group("tests/wire/security/test_tls.py")
def test_a_broker_verifies_the_token_of_a_provider(secured: SecuredKafka) -> None:
    servers = secured.kafka.listener("SHORT")
    with Cluster(servers, security=security_of(secured.provided())) as cluster:
        assert cluster.nodes()
    wrong = security_of(secured.provided(aud="another-service"))
    with Cluster(servers, security=wrong) as cluster, pytest.raises(AccessError) as raised:
        cluster.nodes()
    said = str(raised.value)
    assert "rejected the token of the token provider 'tests.provided_tokens:provided'" in said
    assert CLIENT_SECRET not in said
