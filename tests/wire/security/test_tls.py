"""Contexts for TLS connections."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import pytest

from spark_groups.wire.security.tls import Tls, ssl_context
from tests.secured import issue


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
