"""A member of a consumer group: KIP-848's heartbeat protocol without sockets, clock or threads.

In: `join`, answers to heartbeats, `acknowledge` once the caller no longer reads the revoked
partitions and has committed them, `leave`. Out: at most one heartbeat at a time (`poll_heartbeat`),
events, and the time of the next poll (`next_wakeup`).

The coordinator repeats a lost assignment only in answer to a full heartbeat, so the next heartbeat
after a failure is full. A join has an empty list of owned partitions. The member epoch of a
successful answer is always taken, even while leaving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.member.backoff import MAX_BACKOFF_S
from spark_groups.group.member.events import (
    EpochChanged,
    HeartbeatRefused,
    InstanceUnreleased,
    MemberEvent,
    MemberFailed,
    MemberLeft,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RevocationRequested,
)
from spark_groups.group.member.grant_command import remedy_of
from spark_groups.group.member.instance_wait import InstanceWait
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import (
    PLANNING,
    SILENT,
    MemberInput,
    MemberState,
    next_state,
)
from spark_groups.group.member.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)
from spark_groups.group.member.pace import Pace
from spark_groups.group.member.reported_state import ReportedState
from spark_groups.types import NO_PARTITIONS, Assignment

__all__ = ["Member", "MemberConfig"]

FAILED_JOIN_PAUSE_S: Final = 30.0
"""The longest pause after UNKNOWN_SERVER_ERROR to a join. Each join that reaches a classic group
before its first generation fails so, and interrupts its members (measured): the pause must outlast
their `group.initial.rebalance.delay.ms`, 3 s by default."""
_COMMITTING: Final = (*PLANNING, MemberState.PREPARE_LEAVING)


class Member:
    """The heartbeat state machine, without I/O.

    Args:
        config: The member's fixed properties.
        new_member_id: Returns a new member id (a UUID) with each call.
    """

    def __init__(self, config: MemberConfig, new_member_id: Callable[[], str]) -> None:
        self.config = config
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = new_member_id()
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self.assigned = NO_PARTITIONS
        """The coordinator's current assignment."""
        self.owned = NO_PARTITIONS
        """The partitions reported as owned: the assigned ones and those to revoke."""
        self.revoking = NO_PARTITIONS
        """The owned partitions that are not assigned any more."""
        self.failure: str | None = None
        self.revocation_requested_at: float | None = None
        """The earliest time from which the coordinator may count the rebalance timeout."""
        self.revocation_timeout_s = 0.0
        """The rebalance timeout of this revocation; a later raise applies from the next one."""
        self.last_accepted_sent_at: float | None = None
        """When the last accepted heartbeat was sent."""
        self.abandoned_ids: list[str] = []
        """Earlier member ids of this member that the coordinator may still know; the client
        releases them."""
        self.is_leave_unanswered = False
        """Whether the member has stopped waiting for the answer to its last heartbeat."""
        self.pace = Pace(fast=config.fast_heartbeats)
        self.rebalance_timeout_ms = config.rebalance_timeout_ms
        self.session_timeout_ms = config.session_timeout_ms
        """The effective session timeout; the client updates it from the group's settings."""
        self.instance_wait = InstanceWait()
        self._new_member_id = new_member_id
        self._in_flight: HeartbeatRequest | None = None
        self._report = ReportedState(config)
        self._leave_epoch = LEAVE_GROUP_MEMBER_EPOCH
        self.events: list[MemberEvent] = []
        """Events since the last `poll_events`."""

    @property
    def revocation_deadline(self) -> float | None:
        """When the coordinator removes the member unless it acknowledges the revocation."""
        if self.revocation_requested_at is None:
            return None
        return self.revocation_requested_at + self.revocation_timeout_s

    @property
    def may_commit(self) -> bool:
        """True while the coordinator accepts commits of this member."""
        return self.member_epoch > 0 and self.state in _COMMITTING

    @property
    def instance_deadline(self) -> float | None:
        """When the wait for the instance id ends, None without a wait."""
        return self.instance_wait.deadline(self.session_timeout_ms)

    @property
    def has_left(self) -> bool:
        """True before it joins, and after it has left."""
        return self.state is MemberState.UNSUBSCRIBED

    def warm_up(self) -> None:
        """Send no heartbeat until `join`: the query warms up first."""
        self._move(MemberInput.WARM_UP)

    def join(self, now: float) -> None:
        """Join the group, or rejoin after a loss."""
        self._move(MemberInput.JOIN)
        self._report.forget()
        self.pace.at_once(now)
        self.pace.expect_assignment(now, more=True)

    def return_to_group(self, now: float) -> None:
        """Join under a new member id after having left."""
        self.member_id = self._new_member_id()
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self.last_accepted_sent_at = None
        self.is_leave_unanswered = False
        self.join(now)

    def acknowledge(self, now: float) -> None:
        """Release all partitions to revoke: none is being read, and all are committed."""
        revoked = self.revoking
        self._hold(self.assigned, self.assigned)
        self.revocation_requested_at = None
        self._move(MemberInput.REVOKED)
        self._emit(PartitionsRevoked, now, partitions=revoked)
        self.pace.at_once(now)
        self.pace.expect_assignment(now, more=True)

    def raise_rebalance_timeout(self, rebalance_timeout_ms: int, now: float) -> None:
        """Report a larger rebalance timeout in the next heartbeat; ignored unless larger."""
        if rebalance_timeout_ms > self.rebalance_timeout_ms:
            self.rebalance_timeout_ms = rebalance_timeout_ms
            self.pace.at_once(now)

    def report_in_full(self, now: float) -> None:
        """Make the next heartbeat full: its answer repeats a lost assignment."""
        self._report.forget()
        self.pace.at_once(now)

    def lose(self, reason: str, now: float, *, new_id: bool) -> None:
        """Drop everything: the coordinator does not know this member, or knows it at another epoch.

        Args:
            reason: Kafka's message.
            new_id: True to rejoin under a new member id.
        """
        if self.state in SILENT:
            return
        lost = self.owned
        fenced_while_joining = self.state is MemberState.JOINING
        was_leaving = self.state is MemberState.LEAVING
        self._emit(PartitionsLost, now, partitions=lost, reason=reason)
        self._hold(NO_PARTITIONS, NO_PARTITIONS)
        self.revocation_requested_at = None
        self.last_accepted_sent_at = None
        self._move(MemberInput.LOST)
        if was_leaving:
            self._emit(MemberLeft, now)
        if self.state is not MemberState.FENCED:
            return
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self._report.forget()
        if fenced_while_joining and not new_id:
            # Brokers before 4.2 refuse epoch 0 of a member they still know: release its old id.
            self.abandoned_ids.append(self.member_id)
        if new_id or fenced_while_joining:
            self.member_id = self._new_member_id()
        if not fenced_while_joining:
            # After a refused join the pause keeps growing.
            self.pace.at_once(now)

    def leave(self, now: float, *, will_return: bool = False) -> None:
        """Prepare to leave: heartbeats continue until `leave_now`.

        Args:
            will_return: True to keep a static member's partitions for its return (epoch -2).
        """
        static = will_return and self.config.instance_id is not None
        self._leave_epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH if static else LEAVE_GROUP_MEMBER_EPOCH
        self._move(MemberInput.LEAVE)
        self.pace.at_once(now)

    def leave_now(self, now: float) -> None:
        """Send the last heartbeat: nothing is left to commit, or time is up."""
        if self.pace.last_sent_at is None:
            self._left(now)
            return
        self._move(MemberInput.LEAVE_READY)
        self.pace.at_once(now)

    def give_up_leaving(self, now: float) -> None:
        """Stop waiting for the answer to the last heartbeat.

        If the member returns, it first releases its old member id, which the coordinator may still
        know.
        """
        if self.state is MemberState.LEAVING:
            self.abandoned_ids.append(self.member_id)
            self.is_leave_unanswered = True
            self._left(now)

    def poll_heartbeat(self, now: float) -> HeartbeatRequest | None:
        """Return the heartbeat to send now, None unless one is due and none is in flight."""
        due_at = self.next_wakeup()
        if due_at is None or due_at > now:
            return None
        if self.state is MemberState.FENCED:
            self.join(now)
        request = self._next_heartbeat()
        self._in_flight = request
        self.pace.sent(now)
        return request

    def next_wakeup(self) -> float | None:
        """Return when to poll again, None while only an answer can change anything."""
        leaves_before_joining = (
            self.state is MemberState.PREPARE_LEAVING
            and self.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        )
        is_silent = self.state in SILENT or self.state is MemberState.WARMING_UP
        is_quiet = is_silent or self._in_flight is not None or leaves_before_joining
        return None if is_quiet else self.pace.due_at()

    def poll_events(self) -> list[MemberEvent]:
        """Return and forget the events since the last call."""
        events, self.events = self.events, []
        return events

    def handle_response(self, response: HeartbeatResponse, now: float) -> Reaction:
        """Process the answer to the heartbeat in flight, and return the reaction to it."""
        request, self._in_flight = self._in_flight, None
        if request is None or self.state in SILENT:
            return Reaction.ACCEPT
        reaction = rule_for(response.error_code).heartbeat
        if self.state is MemberState.FENCED or request.member_id != self.member_id:
            # The heartbeat was sent before a loss or a return: the answer is outdated.
            self.pace.at_once(now)
        elif request.member_epoch < 0:
            if reaction in (Reaction.RETRY, Reaction.REDISCOVER):
                self.pace.failed(now)
            else:
                self._left(now)
        elif reaction is Reaction.ACCEPT:
            self._accepted(request, response, now)
        else:
            self._refused(reaction, response, now)
        return reaction

    def handle_failure(self, now: float) -> None:
        """Note that the heartbeat in flight got no answer."""
        self._in_flight = None
        self._report.forget()
        self.pace.failed(now)

    def _next_heartbeat(self) -> HeartbeatRequest:
        if self.state is MemberState.LEAVING:
            return self._report.bare(self.member_id, self._leave_epoch)
        return self._report.next_heartbeat(
            self.member_id,
            self.member_epoch,
            owned=self.owned,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            acknowledge=self.state is MemberState.ACKNOWLEDGING,
        )

    def _accepted(self, request: HeartbeatRequest, response: HeartbeatResponse, now: float) -> None:
        self.last_accepted_sent_at = self.pace.last_sent_at
        requested_at = self.pace.unanswered_since
        self.instance_wait.reset()
        self.pace.answered(
            now,
            interval_ms=response.heartbeat_interval_ms,
            throttle_ms=response.throttle_time_ms,
        )
        self._report.accepted(request)
        if response.member_epoch >= 0 and response.member_epoch != self.member_epoch:
            previous, self.member_epoch = self.member_epoch, response.member_epoch
            self._emit(EpochChanged, now, previous=previous)
            self.pace.renew(now)
            self.pace.expect_assignment(now, more=True)
        if self.state is MemberState.LEAVING:
            self.pace.at_once(now)
        else:
            self._reconcile(response.assignment, requested_at, now)

    def _reconcile(
        self, assignment: Assignment | None, requested_at: float | None, now: float
    ) -> None:
        was_revoking = self.revoking
        if assignment is not None:
            added = assignment - self.owned
            self._hold(assignment, self.owned | assignment)
            if added:
                self._emit(PartitionsAssigned, now, partitions=added)
        revoking = self.revoking
        if revoking:
            if revoking - was_revoking:
                self.revocation_requested_at = requested_at
                self.revocation_timeout_s = self._report.rebalance_timeout_s
                deadline = self.revocation_deadline
                self._emit(RevocationRequested, now, partitions=revoking, deadline=deadline)
            self._move(MemberInput.REVOKE)
            return
        self.revocation_requested_at = None
        changed = not self._report.knows(self.owned)
        self._move(MemberInput.ADDED if changed else MemberInput.UNCHANGED)
        if changed or self.state is MemberState.ACKNOWLEDGING:
            self.pace.at_once(now)

    def _refused(self, reaction: Reaction, response: HeartbeatResponse, now: float) -> None:
        name = ErrorCode.name_of(response.error_code)
        message = f"{name}: {response.error_message or 'no message'}"
        self._report.forget()
        joining = self.state is MemberState.JOINING
        failed_join = joining and response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        self.pace.refused(
            now,
            throttle_ms=response.throttle_time_ms,
            max_pause_s=FAILED_JOIN_PAUSE_S if failed_join else MAX_BACKOFF_S,
        )
        if joining and response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # A join creates a group: only classic groups that cannot be converted get this error.
            reaction = Reaction.FAIL
        if reaction in (Reaction.REJOIN_SAME_ID, Reaction.REJOIN_NEW_ID):
            self.lose(message, now, new_id=reaction is Reaction.REJOIN_NEW_ID)
        elif reaction is Reaction.AWAIT_INSTANCE:
            self._await_instance(message, now)
        elif reaction is Reaction.FAIL:
            remedy = remedy_of(
                response.error_code,
                self.config.identity,
                group_id=self.config.group_id,
                topics=self.config.subscription.topic_names,
            )
            self.fail(f"{message} ({remedy})", now)
        else:
            self._emit(HeartbeatRefused, now, error=name, message=response.error_message or "")

    def fail(self, message: str, now: float) -> None:
        """Fail for good; the reason is kept in `failure`."""
        if self.state in SILENT:
            return
        if self.owned:
            self._emit(PartitionsLost, now, partitions=self.owned, reason=message)
        self._hold(NO_PARTITIONS, NO_PARTITIONS)
        self.revocation_requested_at = None
        self.failure = message
        self.instance_wait.reset()
        self._move(MemberInput.FAILED)
        self._emit(MemberFailed, now, message=message)
        if self.state is MemberState.LEAVING:
            # Leave at once, so that other members need not wait for the session timeout.
            self.pace.at_once(now)

    def _await_instance(self, message: str, now: float) -> None:
        remedy = rule_for(ErrorCode.UNRELEASED_INSTANCE_ID).remedy
        is_report_due = self.instance_wait.refused(now)
        deadline = self.instance_deadline
        asked_at = self.pace.last_sent_at
        if not self.config.await_instance:
            self.fail(f"{message} ({remedy})", now)
        elif deadline is not None and asked_at is not None and asked_at > deadline:
            self.fail(
                f"{message} (still held after two session timeouts, so its holder is alive:"
                f" {remedy})",
                now,
            )
        elif is_report_due:
            instance_id = self.config.instance_id or ""
            self._emit(InstanceUnreleased, now, instance_id=instance_id, deadline=deadline)

    def _left(self, now: float) -> None:
        if self.state is not MemberState.LEAVING:
            self._move(MemberInput.LEAVE_READY)
        self._move(MemberInput.LEFT)
        self._hold(NO_PARTITIONS, NO_PARTITIONS)
        self._emit(MemberLeft, now)

    def _hold(self, assigned: Assignment, owned: Assignment) -> None:
        self.assigned, self.owned = assigned, owned
        self.revoking = owned - assigned

    def _move(self, member_input: MemberInput) -> None:
        self.state = next_state(self.state, member_input)

    def _emit(self, kind: Callable[..., MemberEvent], now: float, **fields: object) -> None:
        self.events.append(kind(now, self.member_id, self.member_epoch, **fields))
