"""A group of the 0.9 design while a request or a timer is handled: its next value, and effects.

A JoinGroup is parked under the consumer's id until its round is complete. If the consumer sends
another one, the earlier is never answered: the consumer has given it up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.group import CoordinatorState, DesignGroup
from group_lab.coordinator.design_0_9.messages import DesignJoinGroupResponse
from group_lab.coordinator.effects import (
    Answer,
    Appended,
    Outcome,
    Parked,
    Phase,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)


@dataclass(slots=True)
class Draft:
    """The next value of a group, and the effects so far.

    Args:
        appended: Called when the records are replicated, or their append failed.
    """

    group: DesignGroup
    context: RequestContext
    timers: list[Timer] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    records: tuple[r.Record, ...] = ()
    appended: Appended | None = None

    def change(self, **changes: Any) -> None:
        """Change fields of the group."""
        self.group = replace(self.group, **changes)

    def move(self, state: CoordinatorState) -> None:
        """Enter another state."""
        self.group = self.group.moved(state)

    def add(self, consumer: r.DesignConsumer) -> None:
        """Count the JoinGroup of a consumer, and pause its failure detection until the response."""
        consumer_id = consumer.consumer_id
        self.change(
            joins={**self.group.joins, consumer_id: consumer},
            informed=self.group.informed | {consumer_id},
        )
        self._put(TimerKind.DESIGN_SESSION, None, consumer_id)

    def drop(self, consumer_id: str) -> None:
        """Count the JoinGroup of a consumer no longer."""
        kept = {key: join for key, join in self.group.joins.items() if key != consumer_id}
        self.change(joins=kept)

    def answer(self, consumer_id: str, response: DesignJoinGroupResponse) -> None:
        """Answer the parked JoinGroup of a consumer."""
        self.answers.append(Answer(self.parked(consumer_id), response))

    def parked(self, consumer_id: str) -> Parked:
        """Return the key under which the JoinGroup of a consumer is parked."""
        return Parked(self.group.group_id, consumer_id, Phase.JOIN)

    def start_session(self, consumer: r.DesignConsumer) -> None:
        """Start the session timeout of a consumer again."""
        self._put(TimerKind.DESIGN_SESSION, consumer.session_timeout_ms, consumer.consumer_id)

    def start_round(self, delay_ms: int = 0) -> None:
        """End the round right after this, or later, if it waits for no consumer then."""
        self._put(TimerKind.DESIGN_ROUND, delay_ms)

    def outcome(self, response: Any = None, *, parks: Parked | None = None) -> Outcome[Any]:
        """Return the decision.

        Args:
            response: The answer to the request; None if it is parked.
            parks: Under which key the request waits.
        """
        return Outcome(
            response,
            self.records,
            tuple(self.timers),
            design=self.group,
            parks=parks,
            answers=tuple(self.answers),
            appended=self.appended,
        )

    def _put(self, kind: TimerKind, timeout_ms: int | None, consumer_id: str = "") -> None:
        at = None if timeout_ms is None else self.context.now + timeout_ms / 1000
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, consumer_id), at))
