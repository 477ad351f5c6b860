"""The fixed properties of a member."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.group.member.grant_command import Identity
from spark_groups.group.member.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """The fixed properties of a member.

    Args:
        group_id: The consumer group.
        subscription: Topic names or a pattern.
        instance_id: `group.instance.id` of a static member (KIP-345).
        rack_id: `client.rack`.
        rebalance_timeout_ms: `max.poll.interval.ms`.
        server_assignor: `group.remote.assignor`; None leaves the choice to the broker.
        session_timeout_ms: The one to assume while the group's is unknown.
        fast_heartbeats: False to use only the broker's heartbeat interval.
        await_instance: False to fail at once if another member holds the instance id.
        restart_s: How long a restart of the application takes; None: unknown.
        identity: For errors about missing rights.
    """

    group_id: str
    subscription: Subscription
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = 300_000
    server_assignor: str | None = None
    session_timeout_ms: int = 45_000
    fast_heartbeats: bool = True
    await_instance: bool = True
    restart_s: float | None = None
    identity: Identity | None = None
