"""A token of OAUTHBEARER, and when to fetch the next one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_REFRESH_AT: Final = 0.8
_REFRESH_JITTER: Final = 0.05
_REFRESH_BUFFER_MS: Final = 300_000
_REFRESH_PERIOD_MIN_MS: Final = 60_000
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_SECONDS_MAX: Final = 100_000_000_000
"""As milliseconds this is a day in 1973, as seconds the year 5138."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token with its expiry, as a token provider returns it; its repr shows no secret.

    Args:
        text: The token, of printable ASCII characters.
        expires_at_ms: Milliseconds since 1970.
        principal: Whom the token names, for librdkafka's messages; the broker reads the token.
        extensions: SASL extensions for the broker, as pairs of a name and a value.

    Raises:
        ValueError: A value is invalid; the message never repeats the token.
    """

    text: str = field(repr=False)
    expires_at_ms: int
    principal: str = ""
    extensions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        text = self.text
        if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
            raise ValueError("the token is not a text of printable ASCII characters")
        if not _is_number(self.expires_at_ms):
            raise ValueError("the expiry is not a number of milliseconds since 1970")
        check_extensions(self.extensions)

    @property
    def expires_at_s(self) -> float:
        """Seconds since 1970."""
        return self.expires_at_ms / 1000

    def remaining_ms(self, now_ms: float) -> float:
        """Return the milliseconds until it expires; negative if it has.

        Args:
            now_ms: Milliseconds since 1970.
        """
        return self.expires_at_ms - now_ms


def check_extensions(extensions: Iterable[tuple[str, str]]) -> None:
    """Raise a ValueError for SASL extensions that RFC 7628 does not allow."""
    for name, value in extensions:
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a SASL extension: use letters")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the SASL extension {name} is empty, or not printable")


def refresh_at_ms(token: BearerToken, now_ms: float, chance: float) -> float:
    """Return when to fetch the next token, in milliseconds since 1970.

    As Kafka's Java client with its defaults of `sasl.login.refresh.*`
    (ExpiringCredentialRefreshingLogin): after 80 % to 85 % of the lifetime, but at least 300 s
    before the end, unless the lifetime is shorter than 360 s.

    Args:
        now_ms: When the token was fetched.
        chance: Between 0 and 1, so that not all clients fetch at the same time.
    """
    lifetime_ms = token.remaining_ms(now_ms)
    at_ms = now_ms + lifetime_ms * (_REFRESH_AT + _REFRESH_JITTER * chance)
    if lifetime_ms < _REFRESH_PERIOD_MIN_MS + _REFRESH_BUFFER_MS:
        return at_ms
    return min(at_ms, token.expires_at_ms - _REFRESH_BUFFER_MS)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def looks_like_seconds(expires_at_ms: float) -> bool:
    """Return whether an expiry was given in seconds instead of milliseconds."""
    return 0 < expires_at_ms < _SECONDS_MAX
