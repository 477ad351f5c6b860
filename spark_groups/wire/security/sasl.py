"""Logins and their SASL exchanges."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.errors import AccessError, printable
from spark_groups.wire.security.bearer_token import BearerToken


class Mechanism(Enum):
    """The SASL mechanisms, by Kafka's names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A user with a password, for PLAIN or SCRAM."""

    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """A client with a token from an endpoint (OAUTHBEARER).

    Args:
        endpoint_url: `https://`, `http://`, or `file://` with the token itself.
        client_id: Not needed for a file.
        extensions: SASL extensions, sent to the broker with the token.
        urlencodes_header: Whether id and secret are URL-encoded for the endpoint (RFC 6749, 2.3.1).
    """

    endpoint_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    urlencodes_header: bool = False

    @property
    def mechanism(self) -> Mechanism:
        """The only mechanism with tokens."""
        return Mechanism.OAUTHBEARER

    @property
    def source(self) -> str:
        """The endpoint for messages, without its query, which may contain a secret."""
        scheme, _, rest = self.endpoint_url.partition("?")[0].partition("://")
        return f"the token endpoint {scheme}://{rest.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLogin:
    """A client with tokens from a function that the user names (OAUTHBEARER).

    Args:
        provider: Its name, as the user wrote it.
        settings: Its settings by name, in lower case, without `kafka.sasl.oauthbearer.`.
        extensions: SASL extensions, sent to the broker with every token.
    """

    provider: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """The only mechanism with tokens."""
        return Mechanism.OAUTHBEARER


_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[0-9A-Za-z+/=]+)"
    r",i=(?P<iterations>[1-9][0-9]{0,17})(?:,.*)?",
    re.ASCII,
)
_NO_BINDING: Final = base64.b64encode(b"n,,").decode()
_ITERATIONS_S: Final = 2.0
"""The time that iterations may always take; if little time is left, the next attempt has more."""
_SAMPLE_ITERATIONS: Final = 4096
"""The size of the sample: the least number of iterations that Kafka accepts."""

Login = PasswordLogin | TokenLogin | ProviderLogin
Exchange = Generator[bytes, bytes, None]
"""Yields messages to send, receives the answers, and ends when the client has sent its last one."""


def password_exchange(login: PasswordLogin, timeout_s: float) -> Exchange:
    """Return the exchange for a password.

    Args:
        timeout_s: How long hashing the password may take (SCRAM).

    Raises:
        AccessError: The broker did not prove that it knows the password, or requires more
            iterations than there is time for (SCRAM).
    """
    if login.mechanism is Mechanism.PLAIN:
        yield f"\0{login.username}\0{login.password}".encode()
        return
    yield from _scram(login, timeout_s)


def _scram(login: PasswordLogin, timeout_s: float) -> Exchange:
    """Yield the messages of RFC 5802.

    Neither the name nor the password is normalised (SASLprep), as in Kafka, which would then not
    find what its own tools have stored (ScramFormatter.normalize).
    """
    hash_name = _hash_name(login.mechanism)
    name = login.username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first = f"n={name},r={nonce}"
    server_first = _text(login.mechanism, (yield f"n,,{first}".encode()))
    found = _SERVER_FIRST.fullmatch(server_first)
    if found is None or not found["nonce"].startswith(nonce):
        raise _malformed(login.mechanism, "its first message")
    iterations = int(found["iterations"])
    _fail_if_iterations_take_longer(login.mechanism, iterations, timeout_s)
    try:
        salt = base64.b64decode(found["salt"], validate=True)
    except ValueError:
        raise _malformed(login.mechanism, "the salt") from None

    def keyed(key: bytes, message: str) -> bytes:
        return hmac.digest(key, message.encode(), hash_name)

    salted = hashlib.pbkdf2_hmac(hash_name, login.password.encode(), salt, iterations)
    client_key = keyed(salted, "Client Key")
    final = f"c={_NO_BINDING},r={found['nonce']}"
    signed = f"{first},{server_first},{final}"
    signature = keyed(hashlib.new(hash_name, client_key).digest(), signed)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    answer = _text(
        login.mechanism, (yield f"{final},p={base64.b64encode(proof).decode()}".encode())
    )
    if answer.startswith("e="):
        raise AccessError(
            f"the broker refused the login by {login.mechanism.value}: {printable(answer[2:200])};"
            " check username and password in kafka.sasl.jaas.config"
        )
    if not answer.startswith("v="):
        raise _malformed(login.mechanism, "its last message")
    expected = base64.b64encode(keyed(keyed(salted, "Server Key"), signed))
    if not hmac.compare_digest(expected, answer[2:].partition(",")[0].encode()):
        raise AccessError(
            f"the broker did not prove by {login.mechanism.value} that it knows the password; it"
            " may be an impostor"
        )


def _hash_name(mechanism: Mechanism) -> str:
    return mechanism.value.removeprefix("SCRAM-").replace("-", "").lower()


def _text(mechanism: Mechanism, message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _malformed(mechanism, "a message that is not UTF-8") from None


def _malformed(mechanism: Mechanism, what: str) -> AccessError:
    return AccessError(
        f"{what} is not one of {mechanism.value}: is there a proxy in front of the broker?"
    )


def _fail_if_iterations_take_longer(
    mechanism: Mechanism, iterations: int, timeout_s: float
) -> None:
    """Raise an error if a broker's iterations take too long on this machine.

    Hashing cannot be interrupted, so a sample predicts its duration.
    """
    hash_name = _hash_name(mechanism)
    # Processor time: a pause of the machine must not fail the broker.
    began_at = time.thread_time()
    hashlib.pbkdf2_hmac(hash_name, b"", b"", _SAMPLE_ITERATIONS)
    needed_s = iterations / _SAMPLE_ITERATIONS * (time.thread_time() - began_at)
    if needed_s > max(timeout_s, _ITERATIONS_S):
        raise AccessError(
            f"the broker requires {iterations} iterations of {mechanism.value}, which would take"
            f" {needed_s:.0f} s; it may be an impostor. Alter the user's SCRAM credentials to fewer"
            " iterations, or use OAUTHBEARER"
        )


def token_exchange(token: BearerToken) -> Exchange:
    """Return the exchange for a token, with its extensions."""
    extensions = "".join(f"{name}={value}\1" for name, value in token.extensions)
    refusal = yield f"n,,\1auth=Bearer {token.text}\1{extensions}\1".encode()
    if refusal:
        # The reason comes in JSON first, without an error code; the code answers this one byte.
        yield b"\1"
