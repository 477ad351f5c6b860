"""Secrets in texts that leave the process: errors, log lines and names of tables."""

from __future__ import annotations

import base64
import re
import traceback
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

MASK: Final = "***"
LENGTH_MIN: Final = 4
"""Shorter values are not masked: they would be found in any text."""
IS_SECRET: Final = re.compile(r"secret|password|token|key|assertion|credential", re.IGNORECASE)
"""Finds the names of settings whose values are secrets."""
_SWITCHES: Final = frozenset({"true", "false", "none"})
_TEXT_MAX: Final = 100_000
"""The characters of a text that are searched; the rest is cut off, because it may hold secrets."""
_PART: Final = 120
_SECRET_MAX: Final = 12_000
"""The characters of a secret that are searched in other forms than its own."""
_BASE64_MIN: Final = 6
"""The shortest part of a secret in base64 that is masked, in characters."""
_BLANKS: Final = r"(?:\s|\\[nrtvf]|\\x0[bc]|\\u000[bc]|%(?:25)?(?:0[9a-d]|20)|\+)+"
_URL_LOGIN: Final = re.compile(r"(?<=://)[^/\s?#'\"]*@")
_DSN_PASSWORD: Final = re.compile(
    r"\b(password|passfile|sslpassword)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE
)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets, in any form in which libraries repeat them.

    These are the secret itself, with blanks and line ends changed, with escapes of JSON or Python,
    percent-encoded as a whole or in part, and in base64, also as a part of a longer text such as
    the user and the password of an HTTP login.

    Args:
        text: The text, before it is cut: half of a secret is not found.
        secrets: All secret values of a configuration.
    """
    text = text[:_TEXT_MAX]
    for secret in sorted({*secrets}, key=len, reverse=True):
        if len(secret.strip()) < LENGTH_MIN:
            continue
        text = text.replace(secret, MASK)
        # A long one, such as a key, is searched in parts: a pattern takes time to compile.
        for at in range(0, min(len(secret), _SECRET_MAX), _PART):
            part = secret[at : at + _PART]
            if len(part.strip()) >= LENGTH_MIN:
                text = _pattern(part).sub(MASK, text)
    return text


def without_logins(text: str) -> str:
    """Return a text in which URLs have no login, and connection strings no password.

    Args:
        text: The text; a password in a URL may have an unescaped `@`.
    """
    text = _URL_LOGIN.sub(f"{MASK}@", text)
    return _DSN_PASSWORD.sub(rf"\1\2{MASK}", text)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret values of a configuration: every text of a library about it passes through here.

    Args:
        values: The secret values.
    """

    values: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Secrets:
        """Return the secrets among settings, by the settings' names.

        Args:
            settings: The settings by name, such as those of a catalog, a store or a login.
        """
        found = {str(value) for name, value in settings.items() if IS_SECRET.search(name)}
        # A catalog's credential is `client:secret`, and an endpoint may repeat the second alone.
        found |= {each.partition(":")[2] for each in found}
        return cls(frozenset(each for each in found if each.lower() not in _SWITCHES))

    def line(self, error: BaseException | str) -> str:
        """Return an error's text in one line, without secrets."""
        return " ".join(without_logins(masked(str(error), self.values)).split())

    def cause(self, error: BaseException) -> BaseException | None:
        """Return the error to raise another one from; None if its traceback shows a secret."""
        text = "".join(traceback.format_exception(error))
        return error if without_logins(masked(text, self.values)) == text else None


@lru_cache(maxsize=64)
def _pattern(secret: str) -> re.Pattern[str]:
    words = [
        "".join(f"(?:{'|'.join(map(re.escape, _written(each)))})" for each in word)
        for word in secret.split()
    ]
    forms = [_BLANKS.join(words), *map(re.escape, _in_base64(secret))]
    return re.compile("|".join(forms), re.IGNORECASE)


def _written(character: str) -> Iterator[str]:
    """Yield the ways in which a character is written."""
    octets = character.encode("utf-8", "surrogatepass")
    yield character
    yield "".join(f"%{octet:02x}" for octet in octets)
    # As %25XX, where an address is in an address.
    yield "".join(f"%25{octet:02x}" for octet in octets)
    yield f"\\{character}"
    yield f"\\u{ord(character):04x}"
    yield f"\\x{ord(character):02x}"


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the characters of a secret in base64 that do not depend on its neighbours."""
    octets = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        # Each character has six bits; those that it shares with neighbours are left out.
        first = -(-before * 8 // 6)
        last = (before + len(octets)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found = encode(bytes(before) + octets).decode()[first:last]
            if len(found) >= _BASE64_MIN:
                yield found
                yield urllib.parse.quote(found, safe="")
