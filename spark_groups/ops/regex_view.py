"""A topic pattern, tried on the topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from spark_groups.observation.plain_values import listed
from spark_groups.protocol.subscription import Subscription, surprising


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexView:
    """A pattern, and the topics that it matches.

    Args:
        pattern: The pattern.
        fault: Why it is no RE2 expression, and what to write instead; empty if it is one.
        hint: Why it may match less than it seems to; empty if it does not look so.
        matched: Topics whose whole name it matches, sorted.
        topics: How many topics were tried.
    """

    pattern: str
    fault: str = ""
    hint: str = ""
    matched: tuple[str, ...] = ()
    topics: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        return {name: listed(value) for name, value in asdict(self).items()}


def view_regex(pattern: str, topics: Iterable[str]) -> RegexView:
    """Return which topics a coordinator would take for a pattern.

    Args:
        pattern: The pattern.
        topics: The names of all topics.
    """
    try:
        subscription = Subscription.of_pattern(pattern)
    except ValueError as error:
        return RegexView(pattern=pattern, fault=str(error))
    names = sorted(topics)
    return RegexView(
        pattern=pattern,
        hint=surprising(pattern) or "",
        matched=tuple(name for name in names if subscription.matches(name)),
        topics=len(names),
    )
