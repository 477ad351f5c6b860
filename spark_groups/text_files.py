"""Text of files that people write, also with editors that begin it with a byte order mark."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(octets: bytes, encoding: str) -> str:
    """Return the text of a file.

    Args:
        encoding: That of a file without a byte order mark; a mark says UTF-8 or UTF-16.

    Raises:
        UnicodeDecodeError: The bytes have another encoding.
    """
    marked = next((name for mark, name in _MARKS if octets.startswith(mark)), encoding)
    return octets.decode(marked)
