"""Where an RE2 pattern that must match whole names means something else than its author thinks.

Patterns come along from Java and Python, whose habits are not those of the coordinator: there a
search finds `orders` in `orders-eu`, and look-ahead, back-references and possessive quantifiers
exist. RE2 matches in linear time and has none of them (github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import re
from typing import Final

_NOT_IN_RE2: Final = (
    (
        re.compile(r"\(\?<?[=!]"),
        "RE2 has neither look-ahead nor look-behind: list what is wanted, as in (orders|bills)-.*",
    ),
    (re.compile(r"\\[1-9]|\(\?P="), "RE2 has no back-references: spell out what may be repeated"),
    (
        re.compile(r"(?<!\\)[*+?}]\+"),
        "RE2 has no possessive quantifiers and needs none, it never backtracks: write one + less",
    ),
    (re.compile(r"\(\?>"), "RE2 has no atomic groups and needs none: write (?:...)"),
    (re.compile(r"\\Z"), "a pattern matches whole names anyway: leave \\Z out"),
    (re.compile(r"^[*]|(?<!\\)[(|][*]"), "* repeats what is before it: write .* for anything"),
)
_META: Final = re.compile(r"[*+?{}\[\]()|.\\^$]")
_OPEN_END: Final = re.compile(r"(?:[*+?}$]|\\z)\)*$")


def why_not_re2(pattern: str) -> str:
    """Return what to write instead in a pattern that RE2 refused; empty if nothing is known.

    Args:
        pattern: As it was given.
    """
    return "; ".join(advice for habit, advice in _NOT_IN_RE2 if habit.search(pattern))


def surprising(pattern: str) -> str | None:
    """Return why a legal pattern may match less than it seems to, None if it does not look so.

    Args:
        pattern: An RE2 expression.
    """
    if pattern.startswith("^") and not _OPEN_END.search(pattern):
        bare = pattern.removeprefix("^")
        only = "" if _META.search(bare) else f" and nothing but {bare!r} here"
        return (
            f"subscribePattern {pattern!r} matches whole topic names{only}: for every name that"
            f" begins so write {bare + '.*'!r}"
        )
    if pattern.endswith("$") and not pattern.startswith(("^", ".*", "(", "[")):
        bare = pattern.removesuffix("$")
        return (
            f"subscribePattern {pattern!r} matches whole topic names: for every name that ends so"
            f" write {'.*' + bare!r}"
        )
    return None
