"""OffsetForLeaderEpoch: how far a new leader's log agrees with the offsets read (KIP-320)."""

from __future__ import annotations

from spark_groups.group.member.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from spark_groups.group.requests.list_offsets import LeaderQueries


class LeaderEpochs(LeaderQueries):
    """Validates positions whose leader changed."""

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
