"""Reads `sasl.jaas.config`: one login module with its options, as Java writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?://|\#)[^\n]*\s*|/\*.*?\*/\s*)*
    (?: "(?P<quoted>(?:\\.|[^"\\])*)" | (?P<mark>[=;]) | (?P<word>[^\s="';]+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A Java class that logs in, and what it is told.

    Args:
        name: Its name with its packages.
        options: Its options, with secrets among them.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Read a JAAS configuration of one login module; no message repeats any of its values.

    Args:
        text: `some.LoginModule required name="value" name="value";`

    Raises:
        ValueError: It is not such a text, or has more than one module.
    """
    tokens = list(_tokens(text))
    kinds = "".join(kind[0] for kind, _ in tokens)
    # One letter for each token: a name, a flag, then name=value as often as it is there, and `;`.
    if re.fullmatch(r"ww(?:wm[wq])*m", kinds) is None or tokens[-1] != ("mark", ";"):
        if sum(token == ("mark", ";") for token in tokens) > 1:
            raise ValueError("it names more than one login module: give one")
        raise ValueError('it is not: some.LoginModule required name="value" name="value";')
    if tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"behind the login module must be one of {', '.join(_FLAGS)}")
    rest = tokens[2:-1]
    if any(mark != "=" for _, mark in rest[1::3]):
        raise ValueError("it names more than one login module: give one")
    options = {name: value for (_, name), (_, value) in zip(rest[::3], rest[2::3], strict=True)}
    return LoginModule(tokens[0][1], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"it cannot be read from character {place + 1} on: is a quote open?")
        place = found.end()
        kind = str(found.lastgroup)
        yield kind, _unescaped(found[kind]) if kind == "quoted" else found[kind]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
