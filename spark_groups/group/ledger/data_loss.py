"""`failOnDataLoss`: whether a query fails whose offsets or records are gone, or continues."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.group.ledger.events import DataLost
from spark_groups.group.ledger.resolved import Resolved


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """What a query does about a loss.

    Args:
        fails: `failOnDataLoss`.
    """

    fails: bool

    def lose(self, message: str, resolved: Resolved, now: float) -> bool:
        """Report a loss; return whether the query must fail because of it.

        Args:
            message: The loss, and where the query continues if it may.
        """
        resolved.events.append(DataLost(now, message))
        if self.fails:
            resolved.data_loss = message
        return self.fails
