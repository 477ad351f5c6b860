"""How a connection proves who it is: what the client says, and what it makes of the answers."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.errors import AccessError


class Mechanism(Enum):
    """The SASL mechanisms, by Kafka's names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A user with a password.

    Args:
        mechanism: PLAIN or one of SCRAM's.
        username: The user.
        password: The password.
    """

    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """A client that shows a token which it gets from an endpoint (OAUTHBEARER).

    Args:
        endpoint_url: Where: `https://`, `http://`, or `file://` with the token itself.
        client_id: The client, for which a file needs none.
        client_secret: Its secret.
        scope: What the token shall be good for.
        extensions: What the broker is told beside the token.
    """

    endpoint_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """The one mechanism there is with tokens."""
        return Mechanism.OAUTHBEARER


_ITERATIONS: Final = re.compile(r",i=([0-9]{1,18})(?:,|$)", re.ASCII)
_ITERATIONS_S: Final = 2.0
"""What iterations may take in any case: where only little time is left, the next try has more."""
_SAMPLE_ITERATIONS: Final = 4096
"""How many are timed; the least number of iterations that Kafka takes."""

Login = PasswordLogin | TokenLogin
Exchange = Generator[bytes, bytes, None]
"""Gives what to send, takes what was answered, and ends when the client has nothing more to say."""


def password_exchange(login: PasswordLogin, timeout_s: float) -> Exchange:
    """Return what is said to log in with a password.

    Args:
        login: Who, and how.
        timeout_s: How long the password may be hashed (SCRAM), in seconds.

    Raises:
        AccessError: The broker did not prove that it knows the password too, or asks for more
            iterations than there is time for (SCRAM).
    """
    if login.mechanism is Mechanism.PLAIN:
        yield f"\0{login.username}\0{login.password}".encode()
        return
    # It takes a tenth of a second to import, which not every executor should wait for.
    from scramp import ScramClient, ScramException  # noqa: PLC0415

    try:
        client = ScramClient([login.mechanism.value], login.username, login.password)
        server_first = (yield client.get_client_first().encode()).decode()
        _fail_if_iterations_take_longer(login.mechanism, server_first, timeout_s)
        client.set_server_first(server_first)
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise AccessError(
            f"the broker's part of {login.mechanism.value} is wrong, so it may be another one than"
            f" it says: {error}"
        ) from None


def _fail_if_iterations_take_longer(
    mechanism: Mechanism, server_first: str, timeout_s: float
) -> None:
    """Raise an error if a broker's iterations take too long on this machine.

    Hashing cannot be interrupted, so a sample of it says how long all of it would take.
    """
    found = _ITERATIONS.search(server_first)
    if found is None:
        return
    iterations = int(found[1])
    hash_name = mechanism.value.removeprefix("SCRAM-").replace("-", "").lower()
    # Processor time: a machine that stands still for a moment must not refuse a broker for good.
    began_at = time.thread_time()
    hashlib.pbkdf2_hmac(hash_name, b"", b"", _SAMPLE_ITERATIONS)
    needed_s = iterations / _SAMPLE_ITERATIONS * (time.thread_time() - began_at)
    if needed_s > max(timeout_s, _ITERATIONS_S):
        raise AccessError(
            f"the broker asks for {iterations} iterations of {mechanism.value}, which would take"
            f" {needed_s:.0f} s; it may be another broker than it says. Alter the user's SCRAM"
            " credentials to fewer iterations, or use OAUTHBEARER"
        )


def token_exchange(login: TokenLogin, token: str) -> Exchange:
    """Return what is said to log in with a token.

    Args:
        login: Whose extensions go along.
        token: The token.
    """
    extensions = "".join(f"{name}={value}\1" for name, value in login.extensions)
    refusal = yield f"n,,\1auth=Bearer {token}\1{extensions}\1".encode()
    if refusal:
        # The reason comes in JSON first, without an error code; the code answers this one byte.
        yield b"\1"
