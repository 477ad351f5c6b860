"""ListOffsets: starting positions and log ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from spark_groups.errors import Reaction
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    Request,
    RequestFailed,
)
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.describe import PendingOffsets
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.types import Assignment, TopicIdPartition


@dataclass(slots=True)
class LeaderQueries:
    """Requests to leaders about positions."""

    channel: ClassVar = Channel.CLUSTER
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


@dataclass(slots=True)
class PlanEnds:
    """The log ends that are listed for each plan.

    They include those of partitions whose committed offset is still being fetched, so that both
    requests run at the same time, and those of pending partitions, which are only shown.
    """

    positions: Positions
    pending: PendingOffsets
    shown: frozenset[TopicIdPartition] = field(default=frozenset(), init=False)
    """The pending partitions among those of `to_list`, until `take`."""
    _last_tenure: float = field(default=inf, init=False)
    """The ledger's last tenure when the ends were asked for."""

    def to_list(self, pending: Assignment) -> frozenset[TopicIdPartition]:
        """Return the partitions whose ends the next plan needs, or shows."""
        assigned, ledger = self.positions.member.assigned, self.positions.ledger
        unready = ledger.unready() & assigned.partitions
        resolving = {key for key in unready if not ledger.owned[key].topic_gone}
        own = resolving.union(ledger.positions(assigned))
        self._last_tenure = ledger.last_tenure
        self.shown = self.pending.to_list(pending, is_alone=not own)
        return self.shown.union(own)

    def take(
        self, ends: Mapping[TopicIdPartition, int], now: float
    ) -> Mapping[TopicIdPartition, int]:
        """Show the ends of pending partitions; return those of owned ones that a plan may use."""
        shown, self.shown = self.shown, frozenset()
        for event in self.pending.handle_ends(shown, ends, now):
            self.positions.emit(event)
        return self.usable(ends)

    def usable(self, ends: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        """Return the ends of owned partitions that were listed in their current tenure.

        While a partition is pending its owner reads on, possibly beyond the end listed then. Ends
        of partitions that are not owned may be returned, too.
        """
        ledger = self.positions.ledger
        if ledger.last_tenure <= self._last_tenure:
            return ends
        owned = ledger.owned
        return {
            key: end
            for key, end in ends.items()
            if key in owned and owned[key].tenure <= self._last_tenure
        }
