"""Files in the format of java.util.Properties, such as Kafka's --command-config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.text_files import decoded

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_FILE_BYTES_MAX: Final = 16 * 1024 * 1024


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties of a file in ISO 8859-1, or as its byte order mark says.

    Raises:
        OptionsError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = decoded(file.read(_FILE_BYTES_MAX), "latin-1")
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path} cannot be read: {error}") from None
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a text; of two with one name the last.

    The text has Java's comments, escapes and continued lines.
    """
    found: dict[str, str] = {}
    continued = ""
    for line in (*re.split(r"\r\n|\r|\n", text), ""):
        part = line.lstrip(" \t\f")
        if not continued and (not part or part[0] in "#!"):
            continue
        continued += part
        backslashes = len(continued) - len(continued.rstrip("\\"))
        if backslashes % 2:
            continued = continued[:-1]
            continue
        name, value = _KEY.fullmatch(continued).groups()  # type: ignore[union-attr]
        found[_unescaped(name)] = _unescaped(value)
        continued = ""
    return found


def _unescaped(text: str) -> str:
    def plain(escaped: re.Match[str]) -> str:
        mark = escaped[1]
        return chr(int(mark[1:], 16)) if len(mark) > 1 else _ESCAPES.get(mark, mark)

    return _ESCAPED.sub(plain, text)


def render_properties(properties: Mapping[str, str]) -> str:
    """Return properties in the format of java.util.Properties, one per line.

    Values may contain any character, including line breaks.
    """
    return "".join(
        f"{_escaped(name, ' =:#!')}={_escaped(value, '')}\n" for name, value in properties.items()
    )


def _escaped(text: str, also: str) -> str:
    plain = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    plain |= {character: f"\\{character}" for character in also}
    parts: list[str] = []
    for index, character in enumerate(text):
        if character in plain:
            parts.append(plain[character])
        elif character == " " and index == 0:
            parts.append("\\ ")
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be").hex()
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(parts)
