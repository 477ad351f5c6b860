"""Secrets in texts: as they are, and as libraries write them."""

from __future__ import annotations

import base64
import json
import random
import string
import urllib.parse

import pytest

from spark_groups.masking import LENGTH_MIN, Secrets, masked, without_logins

SECRETS = (
    "hush+hush/hush=",
    "two  words\nand lines",
    'qu"o\\te',
    "süß-secret",
    "s3cr3t",
    "a b@c:d%",
)


def forms(secret: str) -> dict[str, str]:
    basic = f"client:{secret}".encode()
    return {
        "itself": secret,
        "folded": " ".join(secret.split()),
        "percent": urllib.parse.quote(secret, safe=""),
        "percent in lower case": urllib.parse.quote(secret, safe="").lower(),
        "partly percent": urllib.parse.quote(secret),
        "form": urllib.parse.quote_plus(secret),
        "percent of percent": urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""),
        "JSON": json.dumps(secret),
        "Python": repr(secret),
        "base64": base64.b64encode(secret.encode()).decode(),
        "base64 for addresses": base64.urlsafe_b64encode(secret.encode()).decode(),
        "HTTP login": base64.b64encode(basic).decode(),
        "HTTP login in an address": urllib.parse.quote(base64.b64encode(basic).decode(), safe=""),
    }


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", forms("any"))
def test_secret_is_masked_in_each_form(secret: str, form: str) -> None:
    text = forms(secret)[form]
    found = masked(f"it failed: <{text}> (401)", [secret])
    assert "***" in found
    for length in (LENGTH_MIN, len(text)):
        for begin in range(max(1, len(text) - length)):
            part = text[begin : begin + length]
            if form not in {"HTTP login", "HTTP login in an address", "base64"}:
                assert part not in found.replace("failed", "")
    assert found.startswith("it failed: <")
    assert found.endswith("(401)")


def test_random_secrets_leave_no_half_behind() -> None:
    chance = random.Random(7)
    for _ in range(300):
        secret = "".join(chance.choices(string.printable, k=chance.randint(8, 40))).strip() + "end!"
        for form, text in forms(secret).items():
            found = masked(f"<{text}>", [secret])
            assert len(found) <= len("<***>") + 20, (form, secret, found)


def test_long_secrets_are_masked_in_parts() -> None:
    chance = random.Random(3)
    key = "\n".join("".join(chance.choices(string.ascii_letters, k=64)) for _ in range(50))
    for form, text in forms(key).items():
        found = masked(text, [key])
        assert len(found) < len(text) / 8, (form, found)


def test_longest_secret_is_masked_first_and_short_ones_never() -> None:
    assert masked("password1 password", ["password", "password1"]) == "*** ***"
    assert masked("a cat", ["a", "", "  ", "cat"]) == "a cat"


def test_text_is_searched_before_it_is_cut() -> None:
    assert "hush" not in masked("x" * 99_998 + "hush-hush", ["hush-hush"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:p@ss@db/lake", "postgresql://***@db/lake"),
        ("s3://key:secret@bucket/path", "s3://***@bucket/path"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("host=db password=hush user=me", "host=db password=*** user=me"),
        ("host=db password = 'hu sh\\'x' user=me", "host=db password = *** user=me"),
        ("postgresql://db/lake?password=hush&x=1", "postgresql://db/lake?password=***&x=1"),
        ("see https://host/page for more", "see https://host/page for more"),
    ],
)
def test_addresses_have_no_login(text: str, expected: str) -> None:
    assert without_logins(text) == expected


def test_secrets_of_a_configuration_are_in_no_line_and_no_traceback() -> None:
    secrets = Secrets.of(
        {"credential": "me:hush-hush", "s3.access-key-id": "AKIA77", "token-refresh": "true"}
    )
    assert "hush" not in repr(secrets)
    error = ValueError("true: AKIA77\n and hush-hush, see s3://a:b@bucket")
    assert secrets.line(error) == "true: *** and ***, see s3://***@bucket"
    assert secrets.cause(error) is None
    harmless = ValueError("no such bucket")
    assert secrets.cause(harmless) is harmless
    try:
        try:
            raise error
        except ValueError:
            raise harmless  # noqa: B904 - its context holds the secret
    except ValueError:
        assert secrets.cause(harmless) is None
