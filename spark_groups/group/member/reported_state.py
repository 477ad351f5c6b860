"""What the coordinator knows of a member, so that heartbeats carry changes only."""

from __future__ import annotations

from dataclasses import replace

from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.messages import JOIN_GROUP_MEMBER_EPOCH, HeartbeatRequest
from spark_groups.types import Assignment


class ReportedState:
    """What the coordinator knows of this member: a heartbeat carries everything, or the changes.

    Args:
        config: The fields that never change: group, instance id, rack, subscription, assignor.
    """

    def __init__(self, config: MemberConfig) -> None:
        self.rebalance_timeout_s = 0.0
        """The rebalance timeout that the coordinator last accepted; `forget` keeps it."""
        self._everything = HeartbeatRequest(
            group_id=config.group_id,
            member_id="",
            member_epoch=JOIN_GROUP_MEMBER_EPOCH,
            instance_id=config.instance_id,
            rack_id=config.rack_id,
            subscribed_topic_names=config.subscription.topic_names,
            subscribed_topic_regex=config.subscription.topic_regex,
            server_assignor=config.server_assignor,
        )
        self._owned: Assignment | None = None
        self._rebalance_timeout_ms = -1

    def forget(self) -> None:
        """Make the next heartbeat full."""
        self._owned = None
        self._rebalance_timeout_ms = -1

    def accepted(self, request: HeartbeatRequest) -> None:
        """Note the fields of an accepted heartbeat."""
        if request.topic_partitions is not None:
            self._owned = request.topic_partitions
        if request.rebalance_timeout_ms != -1:
            self._rebalance_timeout_ms = request.rebalance_timeout_ms
            self.rebalance_timeout_s = request.rebalance_timeout_ms / 1000

    def knows(self, owned: Assignment) -> bool:
        """Return whether the coordinator knows exactly these owned partitions."""
        return self._owned == owned

    def bare(self, member_id: str, member_epoch: int) -> HeartbeatRequest:
        """Return a heartbeat with nothing but the ids and the epoch."""
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
        """Return a heartbeat with everything that the coordinator does not know yet.

        Args:
            member_id: Member id.
            member_epoch: Member epoch.
            owned: The owned partitions.
            rebalance_timeout_ms: The rebalance timeout to report.
            acknowledge: True to report `owned` even if it is unchanged.
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
