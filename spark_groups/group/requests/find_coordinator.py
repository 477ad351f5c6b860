"""FindCoordinator: the group's coordinator, and since when it is unreachable."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import ClassVar

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.ledger.events import CoordinatorFound, CoordinatorMissing
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.events import Event
from spark_groups.group.member.grant_command import remedy_of
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import SILENT
from spark_groups.group.member.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Node,
    Request,
    RequestFailed,
)


@dataclass(slots=True)
class Coordinator:
    """Finds the coordinator and its cluster; nothing else writes `node`."""

    first_wait_s: ClassVar = 3.0

    member: Member
    emit: Callable[[Event], None]
    node: Node | None = field(default=None, init=False)
    """The coordinator, None if unknown."""
    cluster_id: str | None = field(default=None, init=False)
    """Kafka's id of the cluster, None if unknown."""
    failing_since: float | None = field(default=None, init=False)
    """Since when the group cannot be reached, None while heartbeats are accepted."""
    last_failure: str = field(default="", init=False)
    pause: Backoff = field(default_factory=Backoff, init=False)
    _error: int = field(default=int(ErrorCode.NONE), init=False)

    def next_request(self, now: float) -> FindCoordinatorRequest | None:
        """Find the coordinator whenever it is unknown."""
        if self.node is not None or self.member.state in SILENT or now < self.pause.not_before:
            return None
        return FindCoordinatorRequest(group_id=self.member.config.group_id)

    def answered(
        self, request: FindCoordinatorRequest, response: FindCoordinatorResponse, now: float
    ) -> None:
        """Note the coordinator; an error is reported once, until it changes."""
        code = response.error_code
        if code != ErrorCode.NONE:
            self.refused(request, code, now)
        if response.coordinator is not None and code == ErrorCode.NONE:
            self.node = response.coordinator
            self.cluster_id = response.cluster_id
            self.pause.succeeded()
            self._error = int(ErrorCode.NONE)
            self.emit(CoordinatorFound(now, str(response.coordinator)))
            return
        self.pause.failed(now)
        if code != self._error:
            self._error = code
            self.emit(CoordinatorMissing(now, ErrorCode.name_of(code)))
        self.react(rule_for(code).lookup, code, "FindCoordinator", now)

    def failed(self, _request: FindCoordinatorRequest, _failure: RequestFailed, now: float) -> None:
        """Retry after a pause."""
        self.pause.failed(now)

    def lost(self, node: Node | None = None) -> None:
        """Find the coordinator again, unless `node` names an earlier one."""
        if node is None or node == self.node:
            self.node = None

    def reached(self) -> None:
        """Note an accepted heartbeat; nothing else proves that the group is reachable."""
        self.failing_since = None

    def unreachable(self, reason: str, now: float) -> None:
        """Note that a request got no answer."""
        if self.failing_since is None:
            self.failing_since = now
        self.last_failure = reason

    def refused(self, request: Request, code: int, now: float) -> None:
        """Note an error in the answer to a heartbeat or to FindCoordinator."""
        name = ErrorCode.name_of(code)
        self.unreachable(f"{type(request).__name__} failed with {name}", now)
        if code != ErrorCode.UNRELEASED_INSTANCE_ID:
            # A coordinator that failed over starts a new session for the holder of an instance id:
            # only uninterrupted refusals prove that the holder is alive (KIP-848, "Fail Over").
            self.member.instance_wait.reset()

    def react(
        self,
        reaction: Reaction,
        code: int,
        request: str,
        now: float,
        denied: Collection[str] = (),
    ) -> None:
        """React to an error in any response."""
        name = ErrorCode.name_of(code)
        if denied:
            request = f"{request} of topic {', '.join(sorted(denied))}"
        if reaction is Reaction.REDISCOVER:
            self.lost()
        elif reaction in (Reaction.REJOIN_SAME_ID, Reaction.REJOIN_NEW_ID):
            self.member.lose(
                f"{name} (answer to {request})", now, new_id=reaction is Reaction.REJOIN_NEW_ID
            )
        elif reaction is Reaction.FAIL:
            config = self.member.config
            remedy = remedy_of(
                code,
                config.identity,
                group_id=config.group_id,
                topics=denied or config.subscription.topic_names,
            )
            self.member.fail(f"{name} (answer to {request}): {remedy}", now)
