"""The requests without an answer: how long each may take, and which of them a member waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_groups.group.ledger.events import AnswerAwaited
from spark_groups.group.member.backoff import Patience
from spark_groups.group.member.events import Event

SAID_AFTER_S: Final = 4.0
"""How long an answer may take before the log names the request."""
SHOWN_AFTER_S: Final = 1.0
"""The same for the snapshot, which is taken at any time."""
FORGOTTEN_AFTER_S: Final = 30.0
"""A failed request that was not sent again for this time is not waited for any more."""


@dataclass(frozen=True, slots=True)
class AwaitedAnswer:
    """A request without an answer for a while.

    Args:
        to: The broker; None: any.
        reason: Why the last attempt failed; None: none has.
    """

    request: str
    to: str | None
    age_s: float
    reason: str | None


@dataclass(slots=True)
class _Wait:
    since: float
    to: str
    reason: str = ""
    is_said: bool = False
    failed_at: float | None = None
    """When the last attempt failed, which the log says; None while one is under way."""

    def is_due(self, now: float) -> bool:
        """Return whether the log must name it now."""
        is_long = now - self.since >= SAID_AFTER_S
        return is_long and self.failed_at is None and not self.is_said


class OpenRequests:
    """The requests that have no answer yet, by name.

    Args:
        limit_s: The longest time of one attempt (`request.timeout.ms`).
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waits: dict[str, _Wait] = {}
        self._patiences: dict[str, Patience] = {}

    def asked(self, name: str, first_wait_s: float, now: float, to: str = "") -> float:
        """Note a request, and return how long its answer may take.

        Args:
            name: What it asks for.
            first_wait_s: How long that may take, unless earlier attempts took longer.
            to: The broker; empty: any.
        """
        wait = self._waits.setdefault(name, _Wait(now, to))
        wait.to, wait.failed_at = to, None
        patience = self._patiences.setdefault(name, Patience(first_wait_s, self._limit_s))
        return patience.seconds()

    def answered(self, name: str, took_s: float) -> None:
        """Note an answer."""
        self._waits.pop(name, None)
        if name in self._patiences:
            self._patiences[name].answered(took_s)

    def failed(self, name: str, reason: str, took_s: float, now: float) -> None:
        """Note an attempt without an answer."""
        wait = self._waits.get(name)
        if wait is not None:
            wait.reason, wait.failed_at = reason, now
        if name in self._patiences:
            self._patiences[name].failed(took_s)

    def said(self, now: float) -> list[Event]:
        """Return an event, once, for each request that has waited for a while; forget the others.

        Forgotten is what failed and was not asked for again.
        """
        events: list[Event] = []
        for name, wait in list(self._waits.items()):
            if wait.failed_at is not None and now - wait.failed_at >= FORGOTTEN_AFTER_S:
                del self._waits[name]
            elif wait.is_due(now):
                wait.is_said = True
                waited_s = now - wait.since
                events.append(AnswerAwaited(now, name, wait.to, waited_s, wait.reason))
        return events

    def next_wakeup(self) -> float | None:
        """Return when `said` has something to report; None: nothing waits."""
        return min(
            (
                wait.since + SAID_AFTER_S
                for wait in self._waits.values()
                if not wait.is_said and wait.failed_at is None
            ),
            default=None,
        )

    def awaited(self, now: float) -> tuple[AwaitedAnswer, ...]:
        """Return the requests that have waited for a while."""
        return tuple(
            AwaitedAnswer(name, wait.to or None, round(now - wait.since, 3), wait.reason or None)
            for name, wait in sorted(self._waits.items())
            if now - wait.since >= SHOWN_AFTER_S
        )
