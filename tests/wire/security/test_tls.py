"""Contexts for TLS connections."""

from __future__ import annotations

import re
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.security.tls import Tls, ssl_context, tls_refusal
from tests.secured import SecuredKafka, issue
from tests.wire.security.authentication_setup import opened, refused


def test_a_context_checks_everything_and_is_made_once() -> None:
    tls = Tls(trusted_pem=issue("authority", is_authority=True).certificate_pem)
    context = ssl_context(tls)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}
    assert ssl_context(Tls(trusted_pem=tls.trusted_pem)) is context
    unchecked = ssl_context(Tls(trusted_pem=tls.trusted_pem, verify_host_name=False))
    assert not unchecked.check_hostname
    assert unchecked.verify_mode is ssl.CERT_REQUIRED


def test_the_systems_authorities_are_trusted_by_default() -> None:
    assert ssl_context(Tls()).cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_a_key_is_in_no_file_in_the_clear_and_in_none_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: Path, password: str) -> None:
        seen.append(path.read_text())
        assert path.parent.stat().st_mode & 0o077 == 0
        load(context, path, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    client = issue("carol")
    ssl_context(Tls(certificate_pem=client.certificate_pem, key_pem=client.key_pem))
    assert len(seen) == 1
    assert "BEGIN ENCRYPTED PRIVATE KEY" in seen[0]
    assert "BEGIN PRIVATE KEY" not in seen[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.broker
def test_right_certificates_are_accepted(secured: SecuredKafka) -> None:
    assert opened(secured.kafka.listener("TLS"), secured.tls()) == 1
    assert opened(secured.kafka.listener("MUTUAL"), secured.mutual_tls()) == 1
    client = str(secured.directory / "client.pem")
    in_a_file = secured.tls(ssl__keystore__location=client)
    assert opened(secured.kafka.listener("MUTUAL"), in_a_file) == 1
    store = secured.directory / "client.p12"
    encryption = BestAvailableEncryption(b"store-secret")
    identity = (secured.client.key, secured.client.certificate, secured.client.chain)
    store.write_bytes(serialize_key_and_certificates(b"carol", *identity, encryption))
    in_a_store = secured.tls(
        ssl__keystore__location=str(store), ssl__keystore__password="store-secret"
    )
    assert opened(secured.kafka.listener("MUTUAL"), in_a_store) == 1
    unchecked = secured.tls(ssl__endpoint__identification__algorithm="")
    assert opened(secured.kafka.listener("OTHERHOST"), unchecked) == 1


@pytest.mark.broker
@pytest.mark.parametrize(
    ("listener", "says"),
    [
        ("OTHERHOST", "the certificate of .* does not name this host.*advertised.listeners"),
        ("EXPIRED", "the certificate of .* has expired: renew it on the broker"),
        ("MUTUAL", "requires a client certificate, set kafka.ssl.keystore.location"),
    ],
)
def test_a_wrong_certificate_is_refused_at_once(
    secured: SecuredKafka, listener: str, says: str
) -> None:
    assert re.search(says, refused(secured.kafka.listener(listener), secured.tls()))


@pytest.mark.broker
def test_an_authority_that_is_not_trusted(secured: SecuredKafka) -> None:
    other = issue("authority", is_authority=True)
    settings = {"security.protocol": "SSL"}
    for trusted in ({}, {"ssl.truststore.certificates": other.certificate_pem}):
        said = refused(secured.kafka.listener("TLS"), settings | trusted)
        assert "is not trusted: set kafka.ssl.truststore.location" in said


@pytest.mark.broker
def test_a_client_certificate_of_another_authority(secured: SecuredKafka) -> None:
    mallory = issue("mallory")
    settings = secured.mutual_tls() | {
        "ssl.keystore.certificate.chain": mallory.certificate_pem,
        "ssl.keystore.key": mallory.key_pem,
    }
    said = refused(secured.kafka.listener("MUTUAL"), settings)
    assert "rejected the client certificate of kafka.ssl.keystore" in said


def test_other_errors_say_nothing_about_certificates() -> None:
    address = Address("kafka", 9093)
    assert tls_refusal(ConnectionResetError(), address, Tls()) is None
    assert tls_refusal(ssl.SSLError(1, "[SSL] unexpected eof"), address, Tls()) is None


@pytest.mark.broker
def test_trust_store_with_only_the_certificate_of_the_broker(secured: SecuredKafka) -> None:
    host, _, port = secured.kafka.listener("TLS").rpartition(":")
    certificate = ssl.get_server_certificate((host, int(port)))
    settings = {"security.protocol": "SSL", "ssl.truststore.certificates": certificate}
    # librdkafka has no setting for a chain that ends before an authority of its own.
    with Cluster(secured.kafka.listener("TLS"), security=security_of(settings)) as cluster:
        assert len(cluster.nodes()) == 1
