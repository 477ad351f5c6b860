"""What a coordinator is configured with: the brokers' settings and those of single groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The brokers' settings, by Kafka's names and with its defaults; times in seconds.

    Args:
        session_timeout_s: `group.consumer.session.timeout.ms`.
        min_session_timeout_s: Its least value for a group.
        max_session_timeout_s: Its greatest.
        heartbeat_interval_s: `group.consumer.heartbeat.interval.ms`.
        min_heartbeat_interval_s: Its least value for a group.
        max_heartbeat_interval_s: Its greatest.
        max_size: `group.consumer.max.size`.
        assignors: `group.consumer.assignors`; the first is the default.
        assignment_interval_s: `group.consumer.assignment.interval.ms` (4.3).
        regex_refresh_interval_s: `group.consumer.regex.refresh.interval.ms` (4.1).
        offsets_retention_s: `offsets.retention.minutes`.
        offsets_partitions: `offsets.topic.num.partitions`.
        offset_metadata_max_bytes: `offset.metadata.max.bytes`.
    """

    session_timeout_s: float = 45.0
    min_session_timeout_s: float = 45.0
    max_session_timeout_s: float = 60.0
    heartbeat_interval_s: float = 5.0
    min_heartbeat_interval_s: float = 5.0
    max_heartbeat_interval_s: float = 15.0
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    assignment_interval_s: float = 1.0
    regex_refresh_interval_s: float = 600.0
    offsets_retention_s: float = 604_800.0
    offsets_partitions: int = 50
    offset_metadata_max_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is configured; a change is another value.

    Args:
        broker: The brokers' settings.
        by_group: Dynamic configuration of groups, as text, by group id and name.
    """

    broker: BrokerSettings = field(default_factory=BrokerSettings)
    by_group: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def session_timeout_s(self, group_id: str) -> float:
        """Return after how many seconds of silence a member is removed."""
        return self._of(group_id, SESSION_TIMEOUT, self.broker.session_timeout_s)

    def heartbeat_interval_s(self, group_id: str) -> float:
        """Return how many seconds members are told to leave between heartbeats."""
        return self._of(group_id, HEARTBEAT_INTERVAL, self.broker.heartbeat_interval_s)

    def assignment_interval_s(self, group_id: str) -> float:
        """Return how many seconds lie between two targets, at least (4.3)."""
        return self._of(group_id, ASSIGNMENT_INTERVAL, self.broker.assignment_interval_s)

    def _of(self, group_id: str, name: str, otherwise_s: float) -> float:
        text = self.by_group.get(group_id, {}).get(name)
        return otherwise_s if text is None else int(text) / 1000
