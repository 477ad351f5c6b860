"""OffsetFetch: committed offsets of assigned partitions, and verification of uncertain commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.ledger.events import TopicGone
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import (
    UNANSWERED,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
    RequestFailed,
    found_and_failed,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.offset_commit import denied_topics


@dataclass(slots=True)
class OffsetFetches:
    """Fetches the committed offsets of assigned partitions."""

    first_wait_s: ClassVar = inf

    positions: Positions
    coordinator: Coordinator
    pause: Backoff
    after_heartbeat: float | None = field(default=None, init=False)
    """Set when the member epoch was stale: nothing is fetched before a heartbeat that was sent at
    this time or later is accepted."""

    def next_request(self, now: float) -> OffsetFetchRequest | None:
        """Return the next OffsetFetch, with member id and epoch, None if none is due."""
        positions, member = self.positions, self.positions.member
        if not member.may_commit or now < self.pause.not_before:
            return None
        if self.after_heartbeat is not None:
            proven_at = member.last_accepted_sent_at
            if proven_at is None or proven_at < self.after_heartbeat:
                return None
            self.after_heartbeat = None
        wanted = positions.commits.unverified()
        if not positions.must_fail:
            wanted = positions.resolver.to_fetch() | wanted
        if not wanted:
            return None
        return OffsetFetchRequest(
            group_id=member.config.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            partitions=wanted,
        )

    def answered(
        self, request: OffsetFetchRequest, response: OffsetFetchResponse, now: float
    ) -> None:
        """Resolve positions; a response to a request of an earlier member id is ignored."""
        positions = self.positions
        if request.member_id != positions.member.member_id:
            return
        if response.error_code == ErrorCode.NONE:
            unverified = self._verify(request, response, now)
            resolved = positions.resolver.handle_fetch(response, now=now)
            resolved.react(unverified.reaction, unverified.error)
        else:
            reaction = rule_for(response.error_code).offsets
            failed_as_a_whole = dict.fromkeys(request.partitions, response.error_code)
            resolved = Resolved(reaction, response.error_code, failed=failed_as_a_whole)
        positions.take(resolved)
        positions.failed("OffsetFetch", resolved.failed, now)
        self.pause.ended(now, accepted=resolved.reaction is Reaction.ACCEPT)
        if resolved.reaction is Reaction.REFRESH_EPOCH:
            self.after_heartbeat = now
            positions.member.pace.at_once(now)
        _, failed = found_and_failed(response.answers)
        denied = denied_topics(failed, positions.topics)
        self.coordinator.react(resolved.reaction, resolved.error, "OffsetFetch", now, denied)

    def failed(self, _request: OffsetFetchRequest, _failure: RequestFailed, now: float) -> None:
        """Retry after a pause."""
        # Perhaps only this connection hangs: a heartbeat, which has its own, shows whether the
        # coordinator is reachable. Every request on this channel does the same.
        self.positions.member.pace.at_once(now)
        self.pause.failed(now)

    def _verify(
        self, request: OffsetFetchRequest, response: OffsetFetchResponse, now: float
    ) -> Resolved:
        """Compare the commits whose outcome is unknown with the fetched offsets."""
        positions, resolved = self.positions, Resolved()
        commits = positions.commits
        for key in commits.unverified() & request.partitions:
            answer = response.answers.get(key, UNANSWERED)
            if not isinstance(answer, PartitionError):
                stands = commits.verified(key, answer)
                if stands is not None:
                    positions.take(positions.resolver.committed([stands], now))
                continue
            code = answer.error_code
            reaction = rule_for(code).offsets
            if reaction is Reaction.DROP_TOPIC:
                commits.drop([key])
                positions.emit(TopicGone(now, (key,)))
            else:
                resolved.react(reaction, code)
        return resolved
