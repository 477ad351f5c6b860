"""What a failed TLS handshake means, and which option makes it right."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_groups.errors import AccessError
from spark_groups.wire.addresses import Address
from spark_groups.wire.security.tls import Tls

_UNTRUSTED: Final = (
    "is of an authority that is not trusted: set kafka.ssl.truststore.location or"
    " kafka.ssl.truststore.certificates to the authority's certificate"
)
_OTHER_HOST: Final = (
    "does not name this host: reach the broker by a name that is in it (also in the broker's"
    " advertised.listeners); an empty kafka.ssl.endpoint.identification.algorithm would not check"
)
_CERTIFICATE_PROBLEMS: Final[Mapping[int, str]] = MappingProxyType(
    {
        2: _UNTRUSTED,
        # An authority of the same name with another key.
        7: _UNTRUSTED,
        9: "is not valid yet: check the clocks",
        10: "has expired: renew it on the broker (ssl.keystore), or correct this clock",
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
    ": it wants a client certificate, set kafka.ssl.keystore.location, or"
    " kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
)
_BAD_CERTIFICATE: Final = (
    ": it does not take the client certificate of kafka.ssl.keystore; is that valid, and of an"
    " authority that the broker's ssl.truststore has?"
)


def tls_refusal(error: BaseException, address: Address, tls: Tls) -> AccessError | None:
    """Return why a broker and this client do not take each other; None: the error says not that.

    Args:
        error: What was raised by the handshake, or by the first read behind it.
        address: Where the broker is.
        tls: What was trusted and shown.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        what = _CERTIFICATE_PROBLEMS.get(
            error.verify_code, f"is refused ({error.verify_message}): kafka.ssl.truststore.location"
        )
        return AccessError(f"the certificate of {address} {what}")
    if not isinstance(error, ssl.SSLError):
        return None
    reason = (getattr(error, "reason", None) or "").replace(" ", "_").upper()
    if reason in _NOT_TLS:
        return no_tls(address)
    if "ALERT" not in reason:
        return None
    said = reason.partition("ALERT_")[2].lower().replace("_", " ")
    remedy = ""
    if any(word in reason for word in _ABOUT_THE_CLIENT):
        remedy = _NO_CERTIFICATE if tls.certificate_pem is None else _BAD_CERTIFICATE
    return AccessError(f"{address} refused the TLS handshake ({said}){remedy}")


def no_tls(address: Address) -> AccessError:
    """Return the error for a listener without TLS.

    Args:
        address: Where it is.
    """
    return AccessError(
        f"{address} does not speak TLS: name its SSL or SASL_SSL listener in"
        " kafka.bootstrap.servers, or correct kafka.security.protocol"
    )
