"""Security of connections: one value for this package's connections and librdkafka's.

Secrets that would be sent unencrypted are logged as warnings, each once per process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from spark_groups.errors import OptionsError
from spark_groups.wire.security.sasl import (
    Login,
    Mechanism,
    PasswordLogin,
    ProviderLogin,
    TokenLogin,
)
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.tokens import TOKENS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKEN_TIMEOUT_S: Final = 8.0
logger = logging.getLogger(__name__)
_warned: Final[set[str]] = set()
_warning_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Security:
    """Security protocol, TLS and login of a connection; its text shows no secret.

    Args:
        protocol: Kafka's `security.protocol`.
        tls: Used with SSL and SASL_SSL.
        login: Required with SASL, else None.

    Raises:
        OptionsError: The protocol is unknown, or does not match the login.
    """

    protocol: str = "PLAINTEXT"
    tls: Tls = field(default=Tls())
    login: Login | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise OptionsError(
                f"kafka.security.protocol: {self.protocol!r} is none of {', '.join(PROTOCOLS)}"
            )
        if self.uses_sasl != (self.login is not None):
            problem = "requires a login" if self.uses_sasl else "does not use a login"
            raise OptionsError(f"kafka.security.protocol: {self.protocol} {problem}")

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def principal(self) -> str:
        """The client's principal; empty if a certificate or token determines it."""
        if isinstance(self.login, PasswordLogin):
            return f"User:{self.login.username}"
        is_anonymous = self.login is None and not (self.uses_tls and self.tls.certificate_pem)
        return "User:ANONYMOUS" if is_anonymous else ""

    def tries_another_token(self, reason: str) -> bool:
        """Return whether to log in again with another token, after a broker refused one.

        Args:
            reason: Why it did.
        """
        if not isinstance(self.login, TokenLogin | ProviderLogin):
            return False
        return TOKENS.refused(self.login, reason, time.monotonic())

    def librdkafka_settings(self) -> dict[str, Any]:
        """Return librdkafka's settings, including secrets."""
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if self.uses_tls:
            settings |= _tls_settings(self.tls)
        if self.login is not None:
            settings["sasl.mechanism"] = self.login.mechanism.value
        if isinstance(self.login, PasswordLogin):
            settings["sasl.username"] = self.login.username
            settings["sasl.password"] = self.login.password
        elif isinstance(self.login, TokenLogin | ProviderLogin):
            settings["oauth_cb"] = _token_callback(self.login, self.tls)
        return settings


PLAINTEXT: Final = Security()


def _tls_settings(tls: Tls) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https" if tls.verify_host_name else "none",
    }
    if tls.trusted_pem is not None:
        settings["ssl.ca.pem"] = tls.trusted_pem
    if tls.certificate_pem is not None:
        settings["ssl.certificate.pem"] = tls.certificate_pem
        settings["ssl.key.pem"] = tls.key_pem
    return settings


def _token_callback(login: TokenLogin | ProviderLogin, tls: Tls) -> Any:
    def token(_: str) -> tuple[str, float, str, dict[str, str]]:
        found = TOKENS.token(login, tls, TOKEN_TIMEOUT_S)
        return found.text, found.expires_at_s, found.principal, dict(found.extensions)

    return token


def warn_of_open_secrets(security: Security | None) -> None:
    """Warn of secrets that cross the network unencrypted, each once per process."""
    with _warning_lock:
        for warning in _open_secrets(security):
            if warning not in _warned:
                _warned.add(warning)
                logger.warning("%s", warning)


def _open_secrets(security: Security | None) -> Iterator[str]:
    match security:
        case Security("SASL_PLAINTEXT", _, PasswordLogin(Mechanism.PLAIN)):
            yield (
                "SASL PLAIN over SASL_PLAINTEXT sends the password unencrypted. Set"
                " kafka.security.protocol to SASL_SSL and name a TLS listener, or"
                " kafka.sasl.mechanism to SCRAM-SHA-512, which sends no password"
            )
        case Security("SASL_PLAINTEXT", _, TokenLogin() | ProviderLogin()):
            yield (
                "OAUTHBEARER over SASL_PLAINTEXT sends the token unencrypted: all who see it have"
                " the rights of this client until it expires. Set kafka.security.protocol to"
                " SASL_SSL and name a TLS listener"
            )
    match security:
        case Security(_, _, TokenLogin(endpoint_url=url)) if url.lower().startswith("http:"):
            yield (
                "the client secret and the tokens are sent unencrypted over http://. Set"
                " kafka.sasl.oauthbearer.token.endpoint.url to an https:// address"
            )
