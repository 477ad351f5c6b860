"""Requests to leaders about positions: where they start, and whether logs still reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spark_groups.errors import Reaction
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    RequestFailed,
)
from spark_groups.group.requests.find_coordinator import Coordinator


@dataclass(slots=True)
class LeaderQueries:
    """Requests to leaders about positions."""

    first_wait_s: ClassVar = 10.0

    positions: Positions
    coordinator: Coordinator
    pause: Backoff

    def take(self, resolved: Resolved, request: str, now: float) -> None:
        """Apply what follows from a response."""
        self.positions.take(resolved)
        self.positions.failed(request, resolved.failed, now)
        self.pause.ended(now, accepted=resolved.reaction is Reaction.ACCEPT)
        self.coordinator.react(resolved.reaction, resolved.error, request, now)

    def failed(self, _request: Request, _failure: RequestFailed, now: float) -> None:
        """Retry after a pause."""
        self.pause.failed(now)


class StartOffsets(LeaderQueries):
    """Lists the starting positions of partitions without a committed offset."""

    def next_request(self, _now: float) -> ListOffsetsRequest | None:
        """List the unknown starting positions."""
        return self.positions.resolver.listing.to_list()

    def answered(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now: float
    ) -> None:
        """Process starting positions: they are committed before anything is planned."""
        resolved = self.positions.resolver.listing.handle_list(request, response, now)
        self.take(resolved, "ListOffsets", now)


class DoubtedEnds(LeaderQueries):
    """Lists log ends that are doubted, or that finished runs wait for."""

    def next_request(self, _now: float) -> ListOffsetsRequest | None:
        """List the doubted ends."""
        return self.positions.validator.to_list()

    def answered(
        self, _request: ListOffsetsRequest, response: ListOffsetsResponse, now: float
    ) -> None:
        """Confirm positions that the logs have reached."""
        self.take(self.positions.validator.handle_list(response, now), "ListOffsets", now)


class LeaderEpochs(LeaderQueries):
    """Validates positions whose leader changed: how far its log agrees (KIP-320)."""

    def next_request(self, _now: float) -> OffsetForLeaderEpochRequest | None:
        """Ask about positions whose leader changed."""
        return self.positions.validator.to_ask()

    def answered(
        self,
        request: OffsetForLeaderEpochRequest,
        response: OffsetForLeaderEpochResponse,
        now: float,
    ) -> None:
        """Confirm positions, or detect truncated logs."""
        resolved = self.positions.validator.handle_ends(request, response, now)
        self.take(resolved, "OffsetForLeaderEpoch", now)
