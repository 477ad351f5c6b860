"""What a TLS connection trusts, and who it says it is: as texts, never as files.

The texts travel to executors inside the pickled reader, so that no file has to be there.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

_CONTEXTS_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the other end of a TLS connection is checked, and what it is shown.

    Args:
        trusted_pem: Certificates of the authorities that are trusted; None: the system's.
        certificate_pem: This client's certificate and those between it and its authority.
        key_pem: The key of the certificate, PKCS #8 without a password.
        verify_host_name: Whether the broker's certificate must name the host it is reached at.
    """

    trusted_pem: str | None = field(default=None, repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    verify_host_name: bool = True


@lru_cache(maxsize=_CONTEXTS_MAX)
def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of connections; made once, for it costs milliseconds.

    Args:
        tls: What is trusted and shown.
    """
    context = ssl.create_default_context(cadata=tls.trusted_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify_host_name
    # The same on every Python: 3.13 would refuse authorities that Java and librdkafka take.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST
    if tls.certificate_pem is not None and tls.key_pem is not None:
        _load_certificate(context, tls.certificate_pem, tls.key_pem)
    return context


def _load_certificate(context: ssl.SSLContext, certificate_pem: str, key_pem: str) -> None:
    """Load a certificate with its key, for which Python wants a file: the key is encrypted in it.

    The password is made for the moment, and the file is gone when this returns.
    """
    # It takes a tenth of a second to import, which not every executor should wait for.
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    password = secrets.token_bytes(24).hex()
    key = serialization.load_pem_private_key(key_pem.encode(), password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    with tempfile.TemporaryDirectory(prefix="spark-groups-") as directory:
        path = Path(directory, "certificate.pem")
        path.write_bytes(encrypted + certificate_pem.encode())
        context.load_cert_chain(path, password=password)
