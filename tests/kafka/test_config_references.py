"""Secrets that settings only refer to."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.kafka.config_references import resolved
from spark_groups.kafka.sasl import Mechanism, PasswordLogin
from spark_groups.kafka.security_settings import security_of
from tests.secured import jaas


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "password").write_text("from-directory\n")
    (tmp_path / "secrets.properties").write_text("alice = from-file\n")
    monkeypatch.setenv("SPARK_GROUPS_TEST_PASSWORD", "from-env")
    return tmp_path


def test_what_is_referred_to_is_put_in(directory: Path) -> None:
    assert resolved("${env:SPARK_GROUPS_TEST_PASSWORD}") == "from-env"
    assert resolved(f"a ${{file:{directory}/secrets.properties:alice}} b") == "a from-file b"
    assert resolved(f"${{directory:{directory}:password}}") == "from-directory"
    assert resolved("plain $ {x} ${other:y}") == "plain $ {x} ${other:y}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${env:SPARK_GROUPS_NO_SUCH}", "no such variable in the environment"),
        ("${file:/no/such:alice}", "/no/such cannot be read: No such file"),
        ("${file:alice}", "is not ${file:PATH:NAME}"),
        ("${directory:/no:such}", "cannot be read: No such file"),
        ("${file:HERE/secrets.properties:bob}", "the file has no property bob"),
    ],
)
def test_what_is_not_there_is_said(directory: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^\$\{") as raised:
        resolved(text.replace("HERE", str(directory)))
    assert says in str(raised.value)


def test_every_setting_for_security_may_refer(directory: Path) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(
            "plain.Plain", username="alice", password=f"${{directory:{directory}:password}}"
        ),
    }
    login = PasswordLogin(Mechanism.PLAIN, "alice", "from-directory")
    assert security_of(settings).login == login
    broken = settings | {"sasl.jaas.config": "${env:SPARK_GROUPS_NO_SUCH}"}
    with pytest.raises(OptionsError, match=r"kafka\.sasl\.jaas\.config: \$\{env:SPARK_GROUPS_NO"):
        security_of(broken)
