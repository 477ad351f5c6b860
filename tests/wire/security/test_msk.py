"""IAM tokens of Amazon MSK: signed by AWS's own library, without AWS."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.wire.security.msk import token
from spark_groups.wire.security.sasl import ProviderLogin
from spark_groups.wire.security.token_provider import provided_token

KEY_ID = "AKIAFAKEFAKEFAKE"
SECRET = "hush-aws-secret-1618"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let AWS's library find nothing but what a test gives it."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text(
        f"[flights]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def signed(text: str) -> tuple[str, dict[str, str]]:
    """Return the host and the parameters of the URL that a token is."""
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    return str(url.hostname), {name: values[0] for name, values in parse_qs(url.query).items()}


def test_a_token_is_a_signed_url() -> None:
    found = token({"msk.region": "eu-west-1"})
    host, parameters = signed(found.text)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert parameters["Action"] == "kafka-cluster:Connect"
    assert parameters["X-Amz-Credential"].split("/")[0] == KEY_ID
    assert parameters["X-Amz-Credential"].split("/")[2:4] == ["eu-west-1", "kafka-cluster"]
    assert parameters["X-Amz-Expires"] == "900"
    assert len(parameters["X-Amz-Signature"]) == 64
    assert 880 < found.expires_at_ms / 1000 - time.time() <= 900
    assert SECRET not in found.text + repr(found)


def test_the_region_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert signed(token({}).text)[0] == "kafka.us-east-2.amazonaws.com"


def test_the_credentials_of_a_profile() -> None:
    found = token({"msk.region": "eu-west-1", "msk.profile": "flights"})
    assert signed(found.text)[1]["X-Amz-Credential"].startswith("PROFILEKEY/")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, r"the region is unknown: set kafka\.sasl\.oauthbearer\.msk\.region"),
        ({"msk.regoin": "x"}, r"does not know the option kafka\.sasl\.oauthbearer\.msk\.regoin"),
        ({"msk.profile": "a", "msk.role.arn": "b"}, "are both set: remove one"),
        ({"msk.region": "eu-west-1", "msk.profile": "no"}, r"profile \(no\) could not be found"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(AccessError, match=says):
        token(settings)


def test_credentials_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessError, match="found no AWS credentials here: attach a role"):
        token({"msk.region": "eu-west-1"})


def test_sts_that_cannot_be_reached_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    role = (("msk.role.arn", "arn:aws:iam::123456789012:role/flights"),)
    with pytest.raises(BrokerUnreachableError, match="'msk' failed with EndpointConnectionError"):
        provided_token(ProviderLogin(provider="msk", settings=role))


def test_without_the_library_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(AccessError, match=r"pip install 'spark-groups\[msk\]' on the driver and"):
        token({"msk.region": "eu-west-1"})
