"""What a member subscribes to: topic names, or one RE2 pattern that the coordinator evaluates.

The pattern must match a whole topic name: `^orders` matches nothing but "orders" (KIP-848 uses
RE2/J's `matches()`). It is compiled here with google-re2 so that a wrong one is refused before the
member joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import re2

LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule for topic names (org.apache.kafka.common.internals.Topic)."""


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

    Patterns come along from Java and Python, whose habits are not those of the coordinator: there a
    search finds `orders` in `orders-eu`, and look-ahead, back-references and possessive quantifiers
    exist. RE2 matches in linear time and has none of them (github.com/google/re2/wiki/Syntax).

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


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topic names, or a pattern; exactly one of the two.

    Args:
        topic_names: Sorted names, each once.
        topic_regex: An RE2 expression that must match whole names.
    """

    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None

    @classmethod
    def of_names(cls, names: str | Iterable[str]) -> Subscription:
        """Subscribe to topics by name.

        Args:
            names: Names, or one text with names separated by commas, as Spark's `subscribe`.

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
        """Tell whether a topic of this name is subscribed, as the coordinator would."""
        if self.topic_regex is None:
            return topic in self.topic_names
        return re2.fullmatch(self.topic_regex, topic) is not None

    def shares_topics_with(self, other: Subscription) -> bool:
        """Tell whether both are certain to subscribe to the same topics; patterns are if equal.

        Args:
            other: The other subscription.
        """
        if self.topic_regex is not None and other.topic_regex is not None:
            return self.topic_regex == other.topic_regex
        named = (*map(other.matches, self.topic_names), *map(self.matches, other.topic_names))
        return any(named)


def re2_fault(pattern: str) -> str:
    """Return what RE2 says is wrong with a pattern, "" if nothing is."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        return str(error.args[0].decode("utf-8", "replace"))
    return ""
