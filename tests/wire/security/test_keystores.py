"""Key stores and trust stores, made with cryptography and with keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from spark_groups.ops.java import find_java
from spark_groups.wire.security.keystores import (
    identity_from_pem,
    identity_from_pkcs12,
    read_store,
    trusted_from_pem,
    trusted_from_pkcs12,
)
from tests.secured import Identity, issue

PASSWORD = "store-secret-1"


@pytest.fixture(scope="module")
def authority() -> Identity:
    return issue("authority", is_authority=True)


@pytest.fixture(scope="module")
def client(authority: Identity) -> Identity:
    return issue("carol", issue("between", authority, is_authority=True))


@pytest.fixture(scope="module")
def pkcs12(client: Identity) -> bytes:
    return serialize_key_and_certificates(
        b"carol",
        client.key,
        client.certificate,
        client.chain,
        BestAvailableEncryption(PASSWORD.encode()),
    )


def keytool(*args: str) -> None:
    tool = Path(find_java()).with_name("keytool")
    subprocess.run([str(tool), *args], check=True, capture_output=True, timeout=60)


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
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no certificate in it|cannot be read"):
        trusted_from_pem(text)


def test_what_lacks_a_key_or_a_certificate_is_refused(client: Identity, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contains 2 certificates and 0 keys"):
        identity_from_pem(client.certificate_pem, client.certificate_pem, None)


def test_a_wrong_password_is_said_and_not_shown(pkcs12: bytes) -> None:
    for read in (trusted_from_pkcs12, identity_from_pkcs12):
        with pytest.raises(ValueError, match="the password is wrong") as raised:
            read(pkcs12, "wrong-secret")
        assert "wrong-secret" not in str(raised.value)


def test_stores_of_keytool_are_read(authority: Identity, tmp_path: Path) -> None:
    certificate, trust = tmp_path / "ca.pem", tmp_path / "trust.p12"
    certificate.write_text(authority.certificate_pem)
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate)),
        *("-keystore", str(trust), "-storetype", "PKCS12", "-storepass", PASSWORD),
    )
    kind, content = read_store(str(trust), None)
    assert kind == "PKCS12"
    assert trusted_from_pkcs12(content, PASSWORD) == authority.certificate_pem


def test_a_jks_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "client.jks"
    keytool(
        *("-genkeypair", "-alias", "c", "-keyalg", "RSA", "-dname", "CN=c", "-storetype", "JKS"),
        *("-keystore", str(store), "-storepass", PASSWORD, "-keypass", PASSWORD),
    )
    for said in (None, "JKS", "jks", "PKCS12"):
        with pytest.raises(ValueError, match="keytool -importkeystore") as raised:
            read_store(str(store), said)
    converted = tmp_path / "client.p12"
    command = str(raised.value).split("`")[1].split()[1:]
    keytool(*command, "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    kind, content = read_store(str(converted), "PKCS12")
    chain, key = identity_from_pkcs12(content, PASSWORD)
    assert kind == "PKCS12"
    assert "CERTIFICATE" in chain
    assert "PRIVATE KEY" in key


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
    with pytest.raises(ValueError, match="type 'BKS' is not supported: use PEM or PKCS12"):
        read_store(str(path), "BKS")
