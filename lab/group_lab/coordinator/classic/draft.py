"""A classic group while a request or a timer is handled: its next value, and the effects so far.

A request that must wait is parked: its outcome names a `Parked`, and the shard keeps its ticket
until an `Answer` for the same member and phase comes out of another request, a timer or an append.
A member has at most one JoinGroup and one SyncGroup parked. If it sends another one, or leaves
while its SyncGroup is parked, the earlier request is never answered, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from group_lab.coordinator.classic.group import ClassicGroup, ClassicMember, ClassicState
from group_lab.coordinator.classic.messages import JoinGroupResponse, SyncGroupResponse
from group_lab.coordinator.effects import (
    Answer,
    Appended,
    InitialDelay,
    Outcome,
    Parked,
    Phase,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from group_lab.coordinator.records import Record
from spark_groups.errors import ErrorCode


@dataclass(slots=True)
class Draft:
    """The next value of a group, and what happens besides."""

    group: ClassicGroup
    context: RequestContext
    timers: list[Timer] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    records: tuple[Record, ...] = ()

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def change(self, **changes: Any) -> None:
        """Change fields of the group."""
        self.group = replace(self.group, **changes)

    def change_member(self, member_id: str, **changes: Any) -> ClassicMember:
        """Change fields of a member, and return it."""
        member = replace(self.group.members[member_id], **changes)
        self.group = self.group.with_member(member)
        return member

    def change_all(self, of: Callable[[ClassicMember], ClassicMember]) -> None:
        """Change all members."""
        self.change(members={each: of(member) for each, member in self.group.members.items()})

    def move(self, state: ClassicState) -> None:
        """Enter another state."""
        self.group = self.group.moved(state, self.context.now)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending one, and stop its session timeout.

        A parked JoinGroup is answered UNKNOWN_MEMBER_ID, so that the member joins again; a parked
        SyncGroup is never answered.
        """
        if member_id in self.group.members:
            self.answer(member_id, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            if self.group.members[member_id].awaits_sync:
                self.answers.append(Answer(Parked(self.group_id, member_id, Phase.SYNC), None))
        self.group = self.group.without(member_id)
        self._cancel(TimerKind.CLASSIC_SESSION, member_id)

    def answer(self, member_id: str, response: JoinGroupResponse | SyncGroupResponse) -> bool:
        """Answer the parked JoinGroup or SyncGroup of a member; return whether there was one."""
        member = self.group.members[member_id]
        if isinstance(response, JoinGroupResponse):
            phase, waits = Phase.JOIN, member.awaits_join
            answered = replace(member, awaits_join=False)
        else:
            phase, waits = Phase.SYNC, member.awaits_sync
            answered = replace(member, awaits_sync=False)
        if waits:
            self.answers.append(Answer(Parked(self.group_id, member_id, phase), response))
            self.group = self.group.with_member(answered)
        return waits

    def fence(self, member_id: str) -> None:
        """Answer what a member waits for: another one has its instance id."""
        code = ErrorCode.FENCED_INSTANCE_ID
        self.answer(member_id, JoinGroupResponse(error_code=code, member_id=member_id))
        self.answer(member_id, SyncGroupResponse(error_code=code))

    def schedule_session(self, member_id: str, timeout_ms: int | None = None) -> None:
        """Start the session timeout of a member again, or that of a pending one."""
        if timeout_ms is None:
            timeout_ms = self.group.members[member_id].session_timeout_ms
        self._schedule(TimerKind.CLASSIC_SESSION, timeout_ms, member_id)

    def schedule_join(self, timeout_ms: int, initial_delay: InitialDelay | None = None) -> None:
        """Start the timeout of the join phase, or the delay of the initial rebalance."""
        self._schedule(TimerKind.CLASSIC_JOIN, timeout_ms, initial_delay=initial_delay)

    def cancel_join(self) -> None:
        """Stop the timeout of the join phase."""
        self._cancel(TimerKind.CLASSIC_JOIN)

    def schedule_sync(self) -> None:
        """Start the timeout of the sync phase of this generation."""
        self._schedule(TimerKind.CLASSIC_SYNC, self.group.rebalance_timeout_ms)

    def cancel_sync(self) -> None:
        """Stop the timeout of the sync phase."""
        self._cancel(TimerKind.CLASSIC_SYNC)

    def outcome(
        self,
        response: Any = None,
        *,
        parks: Parked | None = None,
        appended: Appended | None = None,
        answers_at_once: bool = False,
    ) -> Outcome[Any]:
        """Return the decision.

        Args:
            response: The answer to the request; None if it is parked.
            parks: Under which key the request waits.
            appended: Called when the records are replicated, or their append failed.
            answers_at_once: The response does not wait for replication.
        """
        return Outcome(
            response,
            self.records,
            tuple(self.timers),
            classic=self.group,
            parks=parks,
            answers=tuple(self.answers),
            appended=appended,
            answers_at_once=answers_at_once,
        )

    def _schedule(
        self,
        kind: TimerKind,
        timeout_ms: int,
        member_id: str = "",
        initial_delay: InitialDelay | None = None,
    ) -> None:
        self.timers.append(
            Timer(
                TimerKey(kind, self.group_id, member_id),
                self.context.now + timeout_ms / 1000,
                generation_id=self.group.generation_id,
                initial_delay=initial_delay,
            )
        )

    def _cancel(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group_id, member_id), None))
