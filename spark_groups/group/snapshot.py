"""The state of a client as plain values, for the CLI, notebooks and health checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from math import isinf
from operator import attrgetter
from typing import Any

from spark_groups.group.client import GroupClient
from spark_groups.group.member.messages import NO_OFFSET
from spark_groups.types import TopicId, TopicIdPartition, topic_id_text


def take_snapshot(client: GroupClient, now: float) -> dict[str, Any]:
    """Return the client's state; ages are seconds, unknown values are None, never 0."""
    member, ledger = client.member, client.ledger
    in_flight, waits = ledger.in_flight, client.positions.waits()
    return {
        "group": member.config.group_id,
        "member_id": member.member_id,
        "instance_id": member.config.instance_id,
        "member_epoch": member.member_epoch,
        "state": member.state.name,
        "failure": member.failure,
        "group_state": client.target.group_state or None,
        "group_epoch": client.target.group_epoch or None,
        "assignment_epoch": client.target.assignment_epoch or None,
        "coordinator": str(client.coordinator) if client.coordinator else None,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "heartbeat_interval_ms": int(member.pace.interval_s * 1000),
        "awaited_answers": client.open_requests.shown(now),
        **_deadlines(client, now),
        "assigned": _partitions(client, member.assigned),
        "pending": _partitions(client, client.pending),
        "pending_ranges": [asdict(each) for each in client.withheld()],
        "revoking": _partitions(client, member.revoking),
        "uncommitted": _partitions(client, client.uncommitted),
        "commits_refused": client.commits.refused,
        "in_flight": None
        if in_flight is None
        else [
            {
                "topic": each.topic,
                "partition": each.partition,
                "from_offset": each.from_offset,
                "until_offset": each.until_offset,
            }
            for each in in_flight.ranges
        ],
        "partitions": [
            {
                "topic": name,
                "topic_id": id_text,
                "partition": key.partition,
                "phase": owned.phase.name,
                "assigned_epoch": owned.assigned_epoch,
                "committed_offset": _known(owned.committed_offset),
                "position": _known(owned.position),
                "waits_for": str(waits[key]) if key in waits else None,
                "log_end_offset": client.planner.log_ends.get(key),
            }
            for topic_id, keys in _by_topic(ledger.owned)
            for name, id_text in [(client.topics.name(topic_id), topic_id_text(topic_id))]
            for key in keys
            for owned in [ledger.owned[key]]
        ],
        "tally": client.metrics.as_plain(now),
    }


def _deadlines(client: GroupClient, now: float) -> dict[str, Any]:
    """What the member waits for, since when, and for how long."""
    member, liveness = client.member, client.liveness.activity
    requested_at, due_at = member.revocation_requested_at, member.next_wakeup()
    failing_since = client.failing_since
    return {
        "last_heartbeat_age_s": _age(member.last_accepted_sent_at, now),
        "heartbeat_overdue_s": None if due_at is None else round(max(0.0, now - due_at), 3),
        "proven_for_s": _rounded(client.session.proven_for_s(member.pace.interval_s)),
        "unreachable_age_s": _age(failing_since, now),
        "unreachable_reason": None if failing_since is None else client.last_failure,
        "session_timeout_ms": client.session.session_timeout_ms,
        "instance_wait_age_s": _age(member.instance_wait.since, now),
        "instance_wait_left_s": _left(member.instance_deadline, now),
        "last_call_age_s": _age(client.last_called_at, now),
        "batch_age_s": _rounded(liveness.batch_age_s(now)),
        "batch_limit_s": _rounded(liveness.max_batch_s),
        "idle_s": _rounded(liveness.idle_s(now)),
        "idle_limit_s": _rounded(liveness.idle_limit_s),
        "left_because_idle": client.is_absent,
        "revocation_age_s": _age(requested_at, now),
        "revocation_timeout_s": None if requested_at is None else member.revocation_timeout_s,
        "uncommitted_age_s": _rounded(client.metrics.uncommitted_age_s(now)),
    }


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(now - at, 3)


def _left(until: float | None, now: float) -> float | None:
    return None if until is None else round(max(0.0, until - now), 3)


def _rounded(seconds: float | None) -> float | None:
    """An infinite limit is None, because JSON has no infinity."""
    return None if seconds is None or isinf(seconds) else round(seconds, 3)


def _known(value: int) -> int | None:
    return None if value == NO_OFFSET else value


def _partitions(client: GroupClient, keys: Iterable[TopicIdPartition]) -> list[str]:
    return [
        f"{name}-{key.partition}"
        for topic_id, found in _by_topic(keys)
        for name in [client.topics.name(topic_id) or topic_id_text(topic_id)]
        for key in found
    ]


def _by_topic(
    keys: Iterable[TopicIdPartition],
) -> Iterator[tuple[TopicId, Iterator[TopicIdPartition]]]:
    return groupby(sorted(keys), key=attrgetter("topic_id"))
