"""A member's subscription: topic names, or one RE2 pattern that the coordinator evaluates.

The pattern must match a whole topic name (KIP-848 uses RE2/J's `matches()`). google-re2 compiles it
here, so that an invalid one is refused before the member joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule for topic names (org.apache.kafka.common.internals.Topic)."""


_NOT_IN_RE2: Final = (
    (
        re.compile(r"\(\?<?[=!]"),
        "RE2 has neither look-ahead nor look-behind: list alternatives, as in (orders|bills)-.*",
    ),
    (re.compile(r"\\[1-9]|\(\?P="), "RE2 has no back-references: spell out what may be repeated"),
    (
        re.compile(r"(?<!\\)[*+?}]\+"),
        "RE2 has no possessive quantifiers and needs none, it never backtracks: write one + less",
    ),
    (re.compile(r"\(\?>"), "RE2 has no atomic groups and needs none: write (?:...)"),
    (re.compile(r"\\Z"), "a pattern matches whole names anyway: leave \\Z out"),
    (re.compile(r"^[*]|(?<!\\)[(|][*]"), "* repeats the preceding element: write .* for anything"),
)
_META: Final = re.compile(r"[*+?{}\[\]()|.\\^$]")
_OPEN_END: Final = re.compile(r"(?:[*+?}$]|\\z)\)*$")


def why_not_re2(pattern: str) -> str:
    """Return what to write instead of a pattern that RE2 refused; empty if nothing is known.

    Patterns from Java and Python use look-ahead, back-references and possessive quantifiers, which
    RE2 does not have (github.com/google/re2/wiki/Syntax).
    """
    return "; ".join(advice for habit, advice in _NOT_IN_RE2 if habit.search(pattern))


def surprising(pattern: str) -> str | None:
    """Return why a legal pattern may match less than expected, None if it does not look so."""
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


@dataclass(frozen=True, slots=True)
class Subscription:
    """Sorted topic names, or an RE2 pattern for whole names."""

    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None

    @classmethod
    def of_names(cls, names: str | Iterable[str]) -> Subscription:
        """Subscribe to topics by name; a text has names separated by commas.

        Raises:
            ValueError: There is no name, or one is not a legal topic name.
        """
        listed = names.split(",") if isinstance(names, str) else list(names)
        stripped = sorted({name.strip() for name in listed if name.strip()})
        if not stripped:
            raise ValueError("names no topic: give one or more names, separated by commas")
        for name in stripped:
            if not LEGAL_TOPIC_NAME.fullmatch(name) or name in (".", ".."):
                raise ValueError(
                    f"{name!r} is not a legal topic name: up to 249 letters, digits, '.', '_', '-'"
                )
        return cls(topic_names=tuple(stripped))

    @classmethod
    def of_pattern(cls, pattern: str) -> Subscription:
        """Subscribe to every topic whose whole name matches an RE2 pattern.

        Raises:
            ValueError: The pattern is empty or not RE2.
        """
        if not pattern:
            raise ValueError("is empty: give an RE2 expression that matches whole topic names")
        if reason := re2_fault(pattern):
            advice = why_not_re2(pattern)
            raise ValueError(
                f"{pattern!r} is not an RE2 expression: {reason}{advice and '; ' + advice}"
            )
        return cls(topic_regex=pattern)

    def matches(self, topic: str) -> bool:
        """Return whether a topic of this name is subscribed."""
        if self.topic_regex is None:
            return topic in self.topic_names
        return _re2().fullmatch(self.topic_regex, topic) is not None

    def reads(self, topic: str, *, is_internal: bool) -> bool:
        """Return whether a query reads a topic: a pattern leaves out Kafka's internal ones.

        The coordinator assigns them nevertheless, it has no exclusion.

        Source: `exclude.internal.topics` of Kafka's classic consumer, which Spark's source uses.
        """
        return self.matches(topic) and not (is_internal and self.topic_regex is not None)

    def shares_topics_with(self, other: Subscription) -> bool:
        """Return whether both certainly share a topic; patterns do if they are equal."""
        if self.topic_regex is not None and other.topic_regex is not None:
            return self.topic_regex == other.topic_regex
        named = (*map(other.matches, self.topic_names), *map(self.matches, other.topic_names))
        return any(named)


def re2_fault(pattern: str) -> str:
    """Return RE2's error for a pattern, "" if it is valid."""
    re2 = _re2()
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        return str(error.args[0].decode("utf-8", "replace"))
    return ""


@cache
def _re2() -> Any:
    # Names need no RE2, and each Python process of a query would import it.
    import re2

    return re2
