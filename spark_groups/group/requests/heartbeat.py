"""ConsumerGroupHeartbeat: the member's own, and those that release its earlier member ids.

A killed query stays a member until its session expires. A query that restarts from its checkpoint
leaves on behalf of that member: a static one with epoch -2, which keeps its partitions, a dynamic
one with -1. If `group.instance.id` changed between two runs, the coordinator refuses the new id for
the old member, which is then released with -1; that works for static members too (measured).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import SILENT
from spark_groups.group.member.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
    Node,
    RequestFailed,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.settings import SessionTimeout


@dataclass(slots=True)
class _ToCoordinator:
    """Base of both requesters: each heartbeat shows whether the group is reachable."""

    first_wait_s: ClassVar = 5.0

    member: Member
    coordinator: Coordinator
    _sent_to: Node | None = field(default=None, init=False)

    def _note_response(
        self, request: HeartbeatRequest, response: HeartbeatResponse, now: float
    ) -> None:
        if response.error_code == ErrorCode.NONE:
            self.coordinator.reached()
        else:
            self.coordinator.refused(request, response.error_code, now)

    def _note_failure(self) -> None:
        # After a failover the coordinator restarts the session of the instance id's holder, so the
        # wait restarts too.
        self.member.instance_wait.reset()
        self.coordinator.lost(self._sent_to)


@dataclass(slots=True)
class Releases(_ToCoordinator):
    """Member ids to release, in order; they precede the member's own heartbeats."""

    _waiting: deque[HeartbeatRequest] = field(default_factory=deque, init=False)

    def add(self, member_id: str) -> None:
        """Release a member id."""
        self._waiting.append(self._leave(member_id, self.member.config.instance_id))

    @property
    def are_done(self) -> bool:
        """True if the coordinator has answered all releases."""
        return not self._waiting

    def next_request(self, _now: float) -> HeartbeatRequest | None:
        """Release the next member id."""
        abandoned_ids = self.member.abandoned_ids
        if abandoned_ids:
            for abandoned_id in abandoned_ids:
                self.add(abandoned_id)
            abandoned_ids.clear()
        if not self._waiting or self.member.state in SILENT:
            return None
        self._sent_to = self.coordinator.node
        return self._waiting[0]

    def answered(self, request: HeartbeatRequest, response: HeartbeatResponse, now: float) -> None:
        """Note the id as released, unless the coordinator could not decide."""
        self._note_response(request, response, now)
        if rule_for(response.error_code).heartbeat in (Reaction.RETRY, Reaction.REDISCOVER):
            self.coordinator.pause.failed(now)
            self.coordinator.lost()
            return
        self._waiting.popleft()
        is_refused = response.error_code != ErrorCode.NONE
        if is_refused and request.instance_id is not None:
            self._waiting.appendleft(self._leave(request.member_id, None))

    def failed(self, _request: HeartbeatRequest, _failure: RequestFailed, now: float) -> None:
        """Retry once the coordinator is found."""
        self._note_failure()
        self.coordinator.pause.failed(now)

    def _leave(self, member_id: str, instance_id: str | None) -> HeartbeatRequest:
        is_static = instance_id is not None
        return HeartbeatRequest(
            group_id=self.member.config.group_id,
            member_id=member_id,
            member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH if is_static else LEAVE_GROUP_MEMBER_EPOCH,
            instance_id=instance_id,
        )


@dataclass(slots=True)
class Heartbeats(_ToCoordinator):
    """The member's own heartbeats."""

    releases: Releases
    session: SessionTimeout

    def next_request(self, now: float) -> HeartbeatRequest | None:
        """Send the heartbeat that is due."""
        self._sent_to = self.coordinator.node
        return self.member.poll_heartbeat(now)

    def answered(self, request: HeartbeatRequest, response: HeartbeatResponse, now: float) -> None:
        """Process assignment, epoch and interval, or the error."""
        self._note_response(request, response, now)
        reaction = rule_for(response.error_code).heartbeat
        self.member.handle_response(response, now)
        if reaction is Reaction.ACCEPT:
            self.session.follow(self.member.pace.interval_s, now)
        if reaction is Reaction.REDISCOVER:
            self.coordinator.lost()

    def failed(self, request: HeartbeatRequest, failure: RequestFailed, now: float) -> None:
        """Find the coordinator; the next heartbeat is full."""
        self._note_failure()
        self.member.handle_failure(now)
        is_join = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if is_join and request.instance_id is not None and failure.may_have_arrived:
            # The coordinator may have given the instance id to this join. It then refuses the next
            # join until this member id is released, or its session expires.
            self.releases.add(request.member_id)
