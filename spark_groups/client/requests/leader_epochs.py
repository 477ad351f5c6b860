"""OffsetForLeaderEpoch: how far the log of a new leader agrees with what was read (KIP-320)."""

from __future__ import annotations

from spark_groups.client.requests.list_offsets import LeaderQueries
from spark_groups.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse


class LeaderEpochs(LeaderQueries):
    """Asks new leaders to confirm positions."""

    def next_request(self, _now: float) -> OffsetForLeaderEpochRequest | None:
        """Ask about the positions whose leader changed."""
        return self.positions.validator.to_ask()

    def answered(
        self,
        request: OffsetForLeaderEpochRequest,
        response: OffsetForLeaderEpochResponse,
        now: float,
    ) -> None:
        """Confirm positions, or find that logs were truncated."""
        resolved = self.positions.validator.handle_ends(request, response, now)
        self.take(resolved, "OffsetForLeaderEpoch", now)
