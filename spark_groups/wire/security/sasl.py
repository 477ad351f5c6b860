"""Logins and their SASL exchanges."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.errors import AccessError
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
    """

    endpoint_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """The only mechanism with tokens."""
        return Mechanism.OAUTHBEARER


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


_ITERATIONS: Final = re.compile(r",i=([0-9]{1,18})(?:,|$)", re.ASCII)
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
    # Importing it takes a tenth of a second; most executors do not need it.
    from scramp import ScramClient, ScramException  # noqa: PLC0415

    try:
        client = ScramClient([login.mechanism.value], login.username, login.password)
        server_first = (yield client.get_client_first().encode()).decode()
        _fail_if_iterations_take_longer(login.mechanism, server_first, timeout_s)
        client.set_server_first(server_first)
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise AccessError(
            f"the broker did not prove its identity by {login.mechanism.value}; it may be an"
            f" impostor: {error}"
        ) from None


def _fail_if_iterations_take_longer(
    mechanism: Mechanism, server_first: str, timeout_s: float
) -> None:
    """Raise an error if a broker's iterations take too long on this machine.

    Hashing cannot be interrupted, so a sample predicts its duration.
    """
    found = _ITERATIONS.search(server_first)
    if found is None:
        return
    iterations = int(found[1])
    hash_name = mechanism.value.removeprefix("SCRAM-").replace("-", "").lower()
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
