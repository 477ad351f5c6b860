"""A group's settings on the cluster: session timeout, heartbeat interval and others.

A group's own settings override the brokers'. Each broker has its own minimum and maximum; those of
the coordinator's broker count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.group.member.messages import FindCoordinatorRequest
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigEntry, ConfigOrigin, ConfigResource
from spark_groups.wire.connection import RequestError

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
_PREFIX: Final = "consumer."
_ON_EVERY_VERSION: Final = (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """One setting of a group of the consumer protocol.

    Args:
        name: The group's name for it; the broker's begins with `group.`.
        value: The effective value; None: unknown.
        origin: The source of the value.
        minimum: The least that the coordinator's broker accepts; None: unknown, or no limit.
        maximum: The most that it accepts.
        inherited: The effective value without one of the group's own; None: unknown.
    """

    name: str
    value: str | None
    origin: ConfigOrigin
    minimum: int | None = None
    maximum: int | None = None
    inherited: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of a group that this principal may read.

    Args:
        settings: Sorted by name; only the brokers' if the group's may not be read; empty if
            neither may.
        reason: Why a setting is unknown; empty if all are known.
        group_is_known: False if only the brokers' settings may be read.
    """

    settings: tuple[GroupSetting, ...] = ()
    reason: str = ""
    group_is_known: bool = True

    @property
    def session_timeout_ms(self) -> int | None:
        """The session timeout; None: unknown."""
        return self._milliseconds(SESSION_TIMEOUT_MS)

    @property
    def heartbeat_interval_ms(self) -> int | None:
        """The interval between heartbeats; None: unknown."""
        return self._milliseconds(HEARTBEAT_INTERVAL_MS)

    def of(self, name: str) -> GroupSetting | None:
        """Return one setting; None if it is unknown, or the brokers do not have it."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def _milliseconds(self, name: str) -> int | None:
        setting = self.of(name)
        return None if setting is None else _number(setting.value)


def group_settings(cluster: Cluster, group_id: str) -> GroupSettings:
    """Read the settings of a group, which need not exist.

    The principal needs DESCRIBE_CONFIGS on the group for its settings, and on the cluster for
    minimum and maximum; the answer has None for refused ones, and the reason.

    Raises:
        RequestError: No broker answered in time.
    """
    reasons: list[str] = []

    def ask(asked: Callable[[], Mapping[str, ConfigEntry]]) -> Mapping[str, ConfigEntry] | None:
        try:
            return asked()
        except ProtocolError as error:
            reasons.append(str(error))
            return None

    own = ask(lambda: cluster.describe_configuration(ConfigResource.GROUP, group_id))
    names = [each for each in own or _ON_EVERY_VERSION if each.startswith(_PREFIX)]
    keys = [key for name in names for key in (f"group.{name}", *bound_keys(name))]
    broker = ask(
        lambda: cluster.describe_configuration(
            ConfigResource.BROKER, _coordinator_of(cluster, group_id), keys
        )
    )
    return GroupSettings(
        settings=merge_settings(names, own, broker or {}),
        reason="; ".join(reasons) and f"{'; '.join(reasons)} (needs DESCRIBE_CONFIGS)",
        group_is_known=own is not None,
    )


def _coordinator_of(cluster: Cluster, group_id: str) -> str:
    found = cluster.find_coordinator(FindCoordinatorRequest(group_id=group_id)).coordinator
    for node in (found,) if found is not None else cluster.nodes():
        return str(node.node_id)
    # A broker without its controller lists no live brokers, not even itself.
    raise RequestError("the cluster has no live broker", may_have_arrived=True)


def bound_keys(name: str) -> tuple[str, str]:
    """Return the broker's names for the minimum and maximum of a group's setting."""
    bare = name.removeprefix(_PREFIX)
    return f"group.{_PREFIX}min.{bare}", f"group.{_PREFIX}max.{bare}"


def merge_settings(
    names: Iterable[str],
    own: Mapping[str, ConfigEntry] | None,
    broker: Mapping[str, ConfigEntry],
) -> tuple[GroupSetting, ...]:
    """Combine the settings of a group with those of its coordinator's broker.

    Args:
        names: The group's names for the settings.
        own: The group's configuration, including inherited values; None: unknown.
        broker: The broker's configuration; empty: unknown.
    """
    merged = []
    for name in sorted(names):
        inherited = broker.get(f"group.{name}")
        minimum, maximum = (broker.get(key) for key in bound_keys(name))
        entry = inherited if own is None else own.get(name)
        if entry is None:
            continue
        # Before Kafka 4.3 an inherited value is always reported as a default.
        is_inherited = entry.origin is ConfigOrigin.DEFAULT and inherited is not None
        merged.append(
            GroupSetting(
                name=name,
                value=entry.value,
                origin=inherited.origin if is_inherited and inherited else entry.origin,
                minimum=_number(minimum.value) if minimum else None,
                maximum=_number(maximum.value) if maximum else None,
                inherited=inherited.value if inherited else None,
            )
        )
    return tuple(merged)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
