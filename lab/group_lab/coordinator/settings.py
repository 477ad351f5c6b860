"""The coordinator's configuration: settings of the brokers and of single groups.

The controller stores a group's settings, so a group need not exist and keeps them when it is
deleted (KIP-848; org.apache.kafka.coordinator.group.GroupConfig).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final

from group_lab.assignors.classic import ClassicAssignor, ClassicRangeAssignor, RoundRobinAssignor
from group_lab.coordinator import messages as m
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


class MigrationPolicy(Enum):
    """The conversions of groups that have members (ConsumerGroupMigrationPolicy)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The brokers' settings with Kafka's defaults; times in seconds.

    Minima and maxima limit the settings of groups.

    Args:
        session_timeout_s: `group.consumer.session.timeout.ms`.
        heartbeat_interval_s: `group.consumer.heartbeat.interval.ms`.
        max_size: `group.consumer.max.size`.
        assignors: `group.consumer.assignors`; the first is the default.
        migration_policy: `group.consumer.migration.policy`.
        assignment_interval_s: `group.consumer.assignment.interval.ms` (4.3).
        regex_refresh_interval_s: `group.consumer.regex.refresh.interval.ms` (4.1).
        offsets_retention_s: `offsets.retention.minutes`.
        offset_metadata_max_bytes: `offset.metadata.max.bytes`.
        classic_min_session_timeout_s: `group.min.session.timeout.ms`.
        classic_max_session_timeout_s: `group.max.session.timeout.ms`.
        classic_initial_rebalance_delay_s: `group.initial.rebalance.delay.ms`.
        classic_max_size: `group.max.size`.
        assignment_strategies: `partition.assignment.strategies` of the 0.9 design, by friendly
            name; the brokers carry them out.

    Raises:
        ValueError: A broker would not start with them (GroupCoordinatorConfig): a value is out of
            its bounds, or no heartbeat fits into a session.
    """

    session_timeout_s: float = 45.0
    min_session_timeout_s: float = 45.0
    max_session_timeout_s: float = 60.0
    heartbeat_interval_s: float = 5.0
    min_heartbeat_interval_s: float = 5.0
    max_heartbeat_interval_s: float = 15.0
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignment_interval_s: float = 1.0
    regex_refresh_interval_s: float = 600.0
    offsets_retention_s: float = 604_800.0
    offset_metadata_max_bytes: int = 4096
    classic_min_session_timeout_s: float = 6.0
    classic_max_session_timeout_s: float = 1800.0
    classic_initial_rebalance_delay_s: float = 3.0
    classic_max_size: int = 2_147_483_647
    assignment_strategies: Mapping[str, ClassicAssignor] = field(
        default_factory=lambda: {
            each.name: each for each in (ClassicRangeAssignor(), RoundRobinAssignor())
        }
    )

    def __post_init__(self) -> None:
        for name, setting in _SETTINGS.items():
            least_s, greatest_s = setting.bounds_s(self)
            value_s = setting.inherited_s(self)
            if not least_s <= value_s <= greatest_s:
                raise ValueError(
                    f"group.{name} is {value_s:g} s: it must be from {least_s:g} to {greatest_s:g}"
                )
        if self.heartbeat_interval_s >= self.session_timeout_s:
            raise ValueError(
                f"group.{HEARTBEAT_INTERVAL} must be less than group.{SESSION_TIMEOUT}"
            )
        if min(self.max_size, self.classic_max_size) < 1:
            raise ValueError("group.consumer.max.size and group.max.size must be at least 1")
        if not self.assignors:
            raise ValueError("group.consumer.assignors must name an assignor")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; a change makes another value.

    Args:
        by_group: Dynamic configuration of groups, as text, by group id and name.
    """

    broker: BrokerSettings = field(default_factory=BrokerSettings)
    by_group: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def session_timeout_s(self, group_id: str) -> float:
        """Return the session timeout of a group's members."""
        return self._of(group_id, SESSION_TIMEOUT, self.broker.session_timeout_s)

    def heartbeat_interval_s(self, group_id: str) -> float:
        """Return the heartbeat interval of a group's members."""
        return self._of(group_id, HEARTBEAT_INTERVAL, self.broker.heartbeat_interval_s)

    def assignment_interval_s(self, group_id: str) -> float:
        """Return the minimum time between two targets (4.3)."""
        return self._of(group_id, ASSIGNMENT_INTERVAL, self.broker.assignment_interval_s)

    def _of(self, group_id: str, name: str, otherwise_s: float) -> float:
        text = self.by_group.get(group_id, {}).get(name)
        return otherwise_s if text is None else int(text) / 1000


MAX_ASSIGNMENT_INTERVAL_S: Final = 15.0
INT_MAX: Final = 2_147_483_647


class ConfigSource(IntEnum):
    """The source of a value (DescribeConfigsResponse.ConfigSource)."""

    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of a group: the least valid number, the brokers' value and their bounds."""

    least: int
    inherited_s: Callable[[BrokerSettings], float]
    bounds_s: Callable[[BrokerSettings], tuple[float, float]]


_SETTINGS: Final[Mapping[str, _Setting]] = {
    HEARTBEAT_INTERVAL: _Setting(
        1,
        lambda broker: broker.heartbeat_interval_s,
        lambda broker: (broker.min_heartbeat_interval_s, broker.max_heartbeat_interval_s),
    ),
    SESSION_TIMEOUT: _Setting(
        1,
        lambda broker: broker.session_timeout_s,
        lambda broker: (broker.min_session_timeout_s, broker.max_session_timeout_s),
    ),
    ASSIGNMENT_INTERVAL: _Setting(
        0,
        lambda broker: broker.assignment_interval_s,
        lambda _broker: (0.0, MAX_ASSIGNMENT_INTERVAL_S),
    ),
}


class _InvalidConfigError(Exception):
    """A change is refused; the message is Kafka's."""


def alter(
    settings: Settings, request: m.AlterGroupConfigRequest, profile: Profile
) -> tuple[Settings, m.AlterGroupConfigResponse]:
    """Change a group's settings, all or none, and return all settings with the answer."""
    group_id = request.group_id
    changed = {**settings.by_group.get(group_id, {}), **request.changes}
    kept = {name: value for name, value in changed.items() if value is not None}
    try:
        _check(kept, settings.broker, profile)
    except _InvalidConfigError as error:
        return settings, m.AlterGroupConfigResponse(
            error_code=ErrorCode.INVALID_CONFIG, error_message=str(error)
        )
    by_group = {each: values for each, values in settings.by_group.items() if each != group_id}
    if kept:
        by_group[group_id] = kept
    return replace(settings, by_group=by_group), m.AlterGroupConfigResponse()


def describe_config(
    settings: Settings, request: m.DescribeGroupConfigRequest, profile: Profile
) -> m.DescribeGroupConfigResponse:
    """Return the effective settings of a group."""
    own = settings.by_group.get(request.group_id, {})
    default = BrokerSettings()
    values = {}
    for name in sorted(_names(profile)):
        inherited_s = _SETTINGS[name].inherited_s
        is_set = profile.reports_config_source and inherited_s(settings.broker) != inherited_s(
            default
        )
        source = ConfigSource.STATIC_BROKER if is_set else ConfigSource.DEFAULT
        values[name] = m.GroupConfigValue(str(_milliseconds(inherited_s(settings.broker))), source)
        if name in own:
            values[name] = m.GroupConfigValue(own[name], ConfigSource.GROUP)
    return m.DescribeGroupConfigResponse(values=values)


def _names(profile: Profile) -> tuple[str, ...]:
    return tuple(
        setting
        for setting in _SETTINGS
        if profile.batches_assignments or setting != ASSIGNMENT_INTERVAL
    )


def _check(own: Mapping[str, str], broker: BrokerSettings, profile: Profile) -> None:
    """Check names, numbers, bounds and the pair, as GroupConfig.validate does."""
    names = _names(profile)
    for name in own:
        if name not in names:
            raise _InvalidConfigError(f"Unknown group config name: {name}")
    numbers = {
        name: _number(name, own[name])
        if name in own
        else _milliseconds(_SETTINGS[name].inherited_s(broker))
        for name in names
    }
    for name in names:
        if name in own:
            _check_bounds(name, numbers[name], broker, profile)
    if numbers[SESSION_TIMEOUT] <= numbers[HEARTBEAT_INTERVAL]:
        raise _InvalidConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _check_bounds(name: str, number: int, broker: BrokerSettings, profile: Profile) -> None:
    least, greatest = map(_milliseconds, _SETTINGS[name].bounds_s(broker))
    if least <= number <= greatest:
        return
    words = name.removeprefix("consumer.")
    if profile.reports_config_range:
        text = f"must be in the range {least} to {greatest} inclusive."
    elif number < least:
        text = f"must be greater than or equal to group.consumer.min.{words}"
    else:
        text = f"must be less than or equal to group.consumer.max.{words}"
    raise _InvalidConfigError(f"{name} {text}")


def _number(name: str, text: str) -> int:
    """Read a number as Java's ConfigDef does."""
    refused = f"Invalid value {text} for configuration {name}: "
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()) or not -INT_MAX <= int(text) <= INT_MAX:
        raise _InvalidConfigError(refused + "Not a number of type INT")
    if int(text) < _SETTINGS[name].least:
        raise _InvalidConfigError(f"{refused}Value must be at least {_SETTINGS[name].least}")
    return int(text)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
