"""What a heartbeat says: everything, or what changed since the last one that was accepted."""

from __future__ import annotations

from dataclasses import replace

from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.types import Assignment


class Report:
    """What the coordinator is known to know about a member.

    Args:
        everything: A heartbeat with all that never changes: group, instance id, rack,
            subscription, assignor.
    """

    def __init__(self, everything: HeartbeatRequest) -> None:
        self.rebalance_timeout_s = 0.0
        """What the coordinator goes by, also while the next heartbeat is to be full."""
        self._everything = everything
        self._owned: Assignment | None = None
        self._rebalance_timeout_ms = -1

    def forget(self) -> None:
        """Make the next heartbeat full."""
        self._owned = None
        self._rebalance_timeout_ms = -1

    def accepted(self, request: HeartbeatRequest) -> None:
        """Note what an accepted heartbeat said."""
        if request.topic_partitions is not None:
            self._owned = request.topic_partitions
        if request.rebalance_timeout_ms != -1:
            self._rebalance_timeout_ms = request.rebalance_timeout_ms
            self.rebalance_timeout_s = request.rebalance_timeout_ms / 1000

    def knows(self, owned: Assignment) -> bool:
        """Tell whether the coordinator was told that exactly this is owned."""
        return self._owned == owned

    def bare(self, member_id: str, member_epoch: int) -> HeartbeatRequest:
        """Return a heartbeat that says nothing but who sends it."""
        return HeartbeatRequest(
            group_id=self._everything.group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=self._everything.instance_id,
        )

    def next_heartbeat(
        self,
        member_id: str,
        member_epoch: int,
        *,
        owned: Assignment,
        rebalance_timeout_ms: int,
        acknowledge: bool,
    ) -> HeartbeatRequest:
        """Return a heartbeat with all that the coordinator has not been told yet.

        Args:
            member_id: Who sends it.
            member_epoch: The epoch it has.
            owned: What it owns.
            rebalance_timeout_ms: How long it may take to give partitions up.
            acknowledge: True to report what is owned although it is the same as before.
        """
        if self._owned is None:
            return replace(
                self._everything,
                member_id=member_id,
                member_epoch=member_epoch,
                rebalance_timeout_ms=rebalance_timeout_ms,
                topic_partitions=owned,
            )
        changes = self.bare(member_id, member_epoch)
        if rebalance_timeout_ms != self._rebalance_timeout_ms:
            changes = replace(changes, rebalance_timeout_ms=rebalance_timeout_ms)
        if acknowledge or not self.knows(owned):
            changes = replace(changes, topic_partitions=owned)
        return changes
