"""TLS: trusted certificates, the client's own, and the meaning of a failed handshake.

Certificates and keys are texts, never files: they travel to executors inside the pickled reader.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from spark_groups.errors import AccessError
from spark_groups.wire.addresses import Address

_CONTEXTS_MAX: Final = 8
_UNTRUSTED: Final = (
    "is signed by an authority that is not trusted: set kafka.ssl.truststore.location or"
    " kafka.ssl.truststore.certificates to the authority's certificate"
)
_OTHER_HOST: Final = (
    "does not name this host: address the broker by a name in its certificate (also in its"
    " advertised.listeners), or set kafka.ssl.endpoint.identification.algorithm to the empty string"
    " to skip this check"
)
_CERTIFICATE_PROBLEMS: Final[Mapping[int, str]] = MappingProxyType(
    {
        2: _UNTRUSTED,
        # An authority with the same name but another key.
        7: _UNTRUSTED,
        9: "is not valid yet: check the clocks",
        10: "has expired: renew it on the broker (ssl.keystore), or check the clock of this host",
        18: _UNTRUSTED,
        19: _UNTRUSTED,
        20: _UNTRUSTED,
        21: _UNTRUSTED,
        62: _OTHER_HOST,
        64: _OTHER_HOST,
    }
)
"""By OpenSSL's X509_V_ERR codes."""
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ABOUT_THE_CLIENT: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
_NO_CERTIFICATE: Final = (
    ": it requires a client certificate, set kafka.ssl.keystore.location, or"
    " kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
)
_BAD_CERTIFICATE: Final = (
    ": it rejected the client certificate of kafka.ssl.keystore; check that it is valid and that"
    " the broker's ssl.truststore contains its authority"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings of a connection.

    Args:
        trusted_pem: Certificates of trusted authorities; None for the system's.
        certificate_pem: The client's certificate chain.
        key_pem: Its key, PKCS #8 without a password.
        verify_host_name: Whether the broker's certificate must name its host.
    """

    trusted_pem: str | None = field(default=None, repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    verify_host_name: bool = True


@lru_cache(maxsize=_CONTEXTS_MAX)
def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of connections; cached, because creating one takes milliseconds."""
    context = ssl.create_default_context(cadata=tls.trusted_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify_host_name
    # For all Python versions: 3.13 would refuse authorities that Java and librdkafka accept.
    # A store may hold only an intermediate authority, or the certificate of the broker itself.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.certificate_pem is not None and tls.key_pem is not None:
        _load_certificate(context, tls.certificate_pem, tls.key_pem)
    return context


def _load_certificate(context: ssl.SSLContext, certificate_pem: str, key_pem: str) -> None:
    """Load a certificate with its key from a file, as Python requires.

    The file exists only during this call, and its key is encrypted with a random password.
    """
    # Importing it takes a tenth of a second; most executors do not need it.
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


class CertificateError(AccessError):
    """The certificate of a broker is not trusted; that of another broker may be."""


def tls_refusal(error: BaseException, address: Address, tls: Tls) -> AccessError | None:
    """Return an AccessError if TLS failed, which is not retried; None for another error.

    Args:
        error: From the handshake, or from the first read after it.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = _CERTIFICATE_PROBLEMS.get(
            error.verify_code,
            f"is not accepted ({error.verify_message}): check kafka.ssl.truststore.location",
        )
        return CertificateError(f"the certificate of {address} {problem}")
    if not isinstance(error, ssl.SSLError):
        return None
    reason = (getattr(error, "reason", None) or "").replace(" ", "_").upper()
    if reason in _NOT_TLS:
        return no_tls(address)
    if "ALERT" not in reason:
        return None
    alert = reason.partition("ALERT_")[2].lower().replace("_", " ")
    remedy = ""
    if any(word in reason for word in _ABOUT_THE_CLIENT):
        remedy = _NO_CERTIFICATE if tls.certificate_pem is None else _BAD_CERTIFICATE
    return AccessError(f"{address} refused the TLS handshake ({alert}){remedy}")


def no_tls(address: Address) -> AccessError:
    """Return the error for a listener without TLS."""
    return AccessError(
        f"{address} does not speak TLS: name the SSL or SASL_SSL listener in"
        " kafka.bootstrap.servers, or correct kafka.security.protocol"
    )
