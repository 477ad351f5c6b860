"""Key stores and trust stores, made with cryptography and with keytool."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from spark_groups.wire.security.keystores import (
    identity_from_jks,
    identity_from_pem,
    identity_from_pkcs12,
    read_store,
    trusted_from_jks,
    trusted_from_pem,
    trusted_from_pkcs12,
)
from tests.secured import (
    KEY_PASSWORD,
    Identity,
    issue,
    key_store,
    keytool,
    pkcs12_of,
    trust_store,
)
from tests.secured import STORE_PASSWORD as PASSWORD


@pytest.fixture(scope="module")
def authority() -> Identity:
    return issue("authority", is_authority=True)


@pytest.fixture(scope="module")
def client(authority: Identity) -> Identity:
    return issue("carol", issue("between", authority, is_authority=True))


@pytest.fixture(scope="module")
def pkcs12(client: Identity) -> bytes:
    return pkcs12_of(client)


def test_pem_and_pkcs12_hold_the_same(client: Identity, pkcs12: bytes) -> None:
    chain, key = identity_from_pem(client.pem, client.pem, None)
    assert (chain, key) == (client.certificate_pem, client.key_pem)
    assert identity_from_pkcs12(pkcs12, PASSWORD) == (chain, key)


def test_a_key_may_have_a_password(client: Identity) -> None:
    encrypted = client.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    ).decode()
    assert identity_from_pem(client.certificate_pem, encrypted, PASSWORD)[1] == client.key_pem
    for password, says in (
        (None, "requires a password"),
        ("wrong-secret", "ssl.key.password right"),
    ):
        with pytest.raises(ValueError, match=says) as raised:
            identity_from_pem(client.certificate_pem, encrypted, password)
        assert "secret" not in str(raised.value)
    with pytest.raises(ValueError, match="the key has no password, but one is set"):
        identity_from_pem(client.certificate_pem, client.key_pem, PASSWORD)


def test_a_text_may_be_in_one_line(authority: Identity) -> None:
    pem = authority.certificate_pem
    assert trusted_from_pem(pem.replace("\n", " ")) == pem
    assert trusted_from_pem(pem.replace("\n", "\\n")) == pem


def test_a_key_must_be_that_of_the_certificate(client: Identity, authority: Identity) -> None:
    with pytest.raises(ValueError, match="the key does not match the first certificate"):
        identity_from_pem(client.certificate_pem, authority.key_pem, None)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----"])
def test_a_text_without_a_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no certificate in it|cannot be read"):
        trusted_from_pem(text)


def test_what_lacks_a_key_or_a_certificate_is_refused(client: Identity, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contains 2 certificates and 0 keys"):
        identity_from_pem(client.certificate_pem, client.certificate_pem, None)


def test_a_wrong_password_is_reported_and_not_shown(pkcs12: bytes) -> None:
    for read in (trusted_from_pkcs12, identity_from_pkcs12):
        with pytest.raises(ValueError, match="the password is wrong") as raised:
            read(pkcs12, "wrong-secret")
        assert "wrong-secret" not in str(raised.value)


def test_stores_of_keytool_are_read(authority: Identity, tmp_path: Path) -> None:
    trust = trust_store(tmp_path, authority, kind="PKCS12")
    kind, content = read_store(str(trust), None)
    assert kind == "PKCS12"
    assert trusted_from_pkcs12(content, PASSWORD) == authority.certificate_pem


@pytest.fixture(scope="module")
def client_jks(client: Identity, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's key store as keytool makes it; the key has a password of its own."""
    return key_store(tmp_path_factory.mktemp("jks"), client)


def test_a_java_key_store_holds_the_same(client: Identity, client_jks: Path) -> None:
    for said in (None, "JKS", "jks"):
        kind, content = read_store(str(client_jks), said)
        assert kind == "JKS"
    found = identity_from_jks("c.jks", content, PASSWORD, KEY_PASSWORD)
    assert found == (client.certificate_pem, client.key_pem)


def test_a_java_trust_store_is_read_with_and_without_its_password(
    authority: Identity, client: Identity, tmp_path: Path
) -> None:
    trust = trust_store(tmp_path, authority, client)
    kind, content = read_store(str(trust), None)
    assert kind == "JKS"
    for password in (PASSWORD, None):
        found = trusted_from_jks("t.jks", content, password)
        assert found.count("BEGIN CERTIFICATE") == 2
        assert authority.certificate_pem in found
    with pytest.raises(ValueError, match="it has no key: one key"):
        identity_from_jks("t.jks", content, PASSWORD, None)


def test_a_wrong_password_of_a_java_key_store_is_reported_and_not_shown(client_jks: Path) -> None:
    content = client_jks.read_bytes()
    wrong = "wrong-secret"
    with pytest.raises(ValueError, match="the password is wrong, or the file") as raised:
        trusted_from_jks("c.jks", content, wrong)
    assert wrong not in str(raised.value)
    with pytest.raises(ValueError, match=r"requires a password: kafka\.ssl\.keystore\.password"):
        identity_from_jks("c.jks", content, None, KEY_PASSWORD)
    for key_password in (wrong, None):
        with pytest.raises(ValueError, match=r"is kafka\.ssl\.key\.password right"):
            identity_from_jks("c.jks", content, PASSWORD, key_password)


def test_a_java_key_store_that_was_cut_is_refused(client_jks: Path) -> None:
    content = client_jks.read_bytes()
    for length in range(4, len(content), 97):
        with pytest.raises(ValueError, match=r"not a Java key store|password is wrong"):
            trusted_from_jks("c.jks", content[:length], PASSWORD)


def test_without_the_extra_a_jks_is_refused_with_the_command_that_converts_it(
    client: Identity, client_jks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    store = tmp_path / "client.jks"
    store.write_bytes(client_jks.read_bytes())
    content = read_store(str(store), None)[1]
    with pytest.raises(ValueError, match=r"pip install 'spark-groups\[jks\]'") as raised:
        trusted_from_jks(str(store), content, PASSWORD)
    command = str(raised.value).split("`")[1].split()[1:]
    passwords = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    keytool(*command, *passwords, "-srckeypass", KEY_PASSWORD, "-srcalias", "carol")
    converted = (tmp_path / "client.p12").read_bytes()
    assert identity_from_pkcs12(converted, PASSWORD) == (client.certificate_pem, client.key_pem)


def test_a_store_must_be_there_and_be_what_it_is_called(
    authority: Identity, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(ValueError, match=r"ca\.pem cannot be read: No such file"):
        read_store(str(path), None)
    path.write_text(authority.certificate_pem)
    assert read_store(str(path), "pem")[0] == "PEM"
    with pytest.raises(ValueError, match="is not PKCS12 but looks like PEM"):
        read_store(str(path), "PKCS12")
    with pytest.raises(ValueError, match="is not JKS but looks like PEM"):
        read_store(str(path), "JKS")
    for kind in ("BKS", "JCEKS"):
        unsupported = f"type '{kind}' is not supported: use PEM, PKCS12, JKS"
        with pytest.raises(ValueError, match=unsupported) as raised:
            read_store(str(path), kind)
        assert "keytool -importkeystore" in str(raised.value)
    path.write_bytes(b"\xce\xce\xce\xce\x00")
    with pytest.raises(ValueError, match="'JCEKS' is not supported"):
        read_store(str(path), None)
