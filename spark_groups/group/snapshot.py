"""The state of a client as one frozen value, for health checks, metrics, the CLI and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from math import isinf
from operator import itemgetter
from typing import Any
from uuid import UUID

from spark_groups.group.client import GroupClient
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import WithheldRange
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import NO_OFFSET
from spark_groups.group.metrics import MetricsSnapshot
from spark_groups.group.requests.open_requests import AwaitedAnswer
from spark_groups.types import TopicId, TopicIdPartition, topic_id_text


@dataclass(frozen=True, slots=True)
class LagTimes:
    """The lag of a partition in time, which only brokers know; see `observation.lag_times`."""

    catch_up_s: float | None = None
    seconds_behind: float | None = None
    deletion_in_s: float | None = None
    deleted_unread_offsets: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """A partition that the member owns.

    Args:
        topic: Its name; None: unknown.
        position: The next offset to plan.
        waits_for: Which request fails with which error, if that keeps it from being read.
        log_end_offset: As of Spark's last call.
        times: Not among the plain values.
    """

    topic: str | None
    topic_id: TopicId
    partition: int
    phase: Phase
    assigned_epoch: int
    committed_offset: int | None
    position: int | None
    waits_for: str | None
    log_end_offset: int | None
    times: LagTimes = LagTimes()

    @property
    def lag(self) -> int | None:
        """The lag as in Kafka's tools: log end minus committed offset; None: unknown."""
        committed, end = self.committed_offset, self.log_end_offset
        return None if committed is None or end is None else max(0, end - committed)


@dataclass(frozen=True, slots=True)
class RangeInFlight:
    """The offsets of one partition that the running batch reads."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """The state of a member; ages are seconds, unknown values are None, never 0.

    Before its run has started, a member has only `group` and `state`, and no counts. `assigned`,
    `pending`, `revoking` and `uncommitted` name partitions as `orders-0`.
    """

    group: str
    member_id: str = ""
    instance_id: str | None = None
    member_epoch: int = 0
    state: MemberState
    failure: str | None = None
    group_state: str | None = None
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    coordinator: str | None = None
    rebalance_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    awaited_answers: tuple[AwaitedAnswer, ...] = ()
    last_heartbeat_age_s: float | None = None
    heartbeat_overdue_s: float | None = None
    proven_for_s: float | None = None
    unreachable_age_s: float | None = None
    unreachable_reason: str | None = None
    session_timeout_ms: int | None = None
    instance_wait_age_s: float | None = None
    instance_wait_left_s: float | None = None
    last_call_age_s: float | None = None
    batch_age_s: float | None = None
    batch_limit_s: float | None = None
    idle_s: float | None = None
    idle_limit_s: float | None = None
    left_because_idle: bool = False
    revocation_age_s: float | None = None
    revocation_timeout_s: float | None = None
    uncommitted_age_s: float | None = None
    assigned: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    pending_ranges: tuple[WithheldRange, ...] = ()
    revoking: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
    commits_refused: int = 0
    in_flight: tuple[RangeInFlight, ...] | None = None
    partitions: tuple[PartitionSnapshot, ...] = ()
    tally: MetricsSnapshot | None = None
    timeline: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """Return plain values, for other processes."""
        if self.tally is None:
            return {"group": self.group, "state": self.state.name}
        return asdict(self, dict_factory=_plain)


def take_snapshot(client: GroupClient, now: float) -> MemberSnapshot:
    """Return the client's state."""
    parts = client.parts
    member, ledger, session = parts.member, parts.ledger, parts.session
    target, search, activity = parts.target, parts.search, parts.liveness.activity
    due_at, requested_at = member.next_wakeup(), member.revocation_requested_at
    pending, in_flight = parts.positions.still_pending(target.pending), ledger.in_flight
    return MemberSnapshot(
        group=member.config.group_id,
        member_id=member.member_id,
        instance_id=member.config.instance_id,
        member_epoch=member.member_epoch,
        state=member.state,
        failure=member.failure,
        group_state=target.group_state or None,
        group_epoch=target.group_epoch or None,
        assignment_epoch=target.assignment_epoch or None,
        coordinator=str(search.node) if search.node else None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        heartbeat_interval_ms=int(member.pace.interval_s * 1000),
        awaited_answers=parts.open_requests.awaited(now),
        last_heartbeat_age_s=_age(member.last_accepted_sent_at, now),
        heartbeat_overdue_s=None if due_at is None else round(max(0.0, now - due_at), 3),
        proven_for_s=_rounded(session.proven_for_s(member.pace.interval_s)),
        unreachable_age_s=_age(search.failing_since, now),
        unreachable_reason=None if search.failing_since is None else search.last_failure,
        session_timeout_ms=session.session_timeout_ms,
        instance_wait_age_s=_age(member.instance_wait.since, now),
        instance_wait_left_s=_left(member.instance_deadline, now),
        last_call_age_s=_age(activity.last_called_at, now),
        batch_age_s=_rounded(activity.batch_age_s(now)),
        batch_limit_s=_rounded(activity.max_batch_s),
        idle_s=_rounded(activity.idle_s(now)),
        idle_limit_s=_rounded(activity.idle_limit_s),
        left_because_idle=parts.liveness.is_absent,
        revocation_age_s=_age(requested_at, now),
        revocation_timeout_s=None if requested_at is None else member.revocation_timeout_s,
        uncommitted_age_s=_rounded(parts.metrics.uncommitted_age_s(now)),
        assigned=_named(parts, member.assigned),
        pending=_named(parts, pending),
        pending_ranges=parts.pending_offsets.withheld(pending),
        revoking=_named(parts, member.revoking),
        uncommitted=_named(parts, parts.commits.pending()),
        commits_refused=parts.commits.refused,
        in_flight=None
        if in_flight is None
        else tuple(
            RangeInFlight(
                offset_range.topic,
                offset_range.partition,
                offset_range.from_offset,
                offset_range.until_offset,
            )
            for offset_range in in_flight.ranges
        ),
        partitions=tuple(_partitions(parts)),
        tally=parts.metrics.snapshot(now),
    )


def _partitions(parts: ClientParts) -> Iterator[PartitionSnapshot]:
    waits = parts.positions.waits()
    for key, owned in sorted(parts.ledger.owned.items(), key=itemgetter(0)):
        yield PartitionSnapshot(
            topic=parts.topics.name(key.topic_id),
            topic_id=key.topic_id,
            partition=key.partition,
            phase=owned.phase,
            assigned_epoch=owned.assigned_epoch,
            committed_offset=_known(owned.committed_offset),
            position=_known(owned.position),
            waits_for=str(waits[key]) if key in waits else None,
            log_end_offset=parts.planner.log_ends.get(key),
        )


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in items if name != "times"}


def _plain_value(value: Any) -> Any:
    match value:
        case Enum():
            return value.name
        case UUID():
            return topic_id_text(value)
        case dict():
            named = {each.name.lower() if isinstance(each, Enum) else each: each for each in value}
            return {name: value[each] for name, each in named.items()}
        case tuple():
            return [_plain_value(each) for each in value]
        case _:
            return value


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(now - at, 3)


def _left(until: float | None, now: float) -> float | None:
    return None if until is None else round(max(0.0, until - now), 3)


def _rounded(seconds: float | None) -> float | None:
    """An infinite limit is None, because JSON has no infinity."""
    return None if seconds is None or isinf(seconds) else round(seconds, 3)


def _known(value: int) -> int | None:
    return None if value == NO_OFFSET else value


def _named(parts: ClientParts, keys: Iterable[TopicIdPartition]) -> tuple[str, ...]:
    name = parts.topics.name
    return tuple(
        f"{name(key.topic_id) or topic_id_text(key.topic_id)}-{key.partition}"
        for key in sorted(keys)
    )
