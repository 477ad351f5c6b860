"""What a member is, for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.protocol.rights import Identity
from spark_groups.protocol.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What a member is, for as long as it lives.

    Args:
        group_id: The consumer group.
        subscription: Topic names or a pattern.
        instance_id: `group.instance.id` of a static member (KIP-345).
        rack_id: `client.rack`.
        rebalance_timeout_ms: How long the coordinator waits for a revocation
            (`max.poll.interval.ms`).
        server_assignor: `group.remote.assignor`; None leaves the choice to the broker.
        session_timeout_ms: The session time-out as long as the group's own is not known.
        fast_heartbeats: False to keep to the broker's heartbeat interval.
        restart_s: How many seconds a restart of the application takes that the member belongs to,
            as far as that is known: a static member has to be back within its session.
        await_instance: False to fail at once where another member holds the instance id.
        identity: Who the member is to the brokers, for errors about missing rights.
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
