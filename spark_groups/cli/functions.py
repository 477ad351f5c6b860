"""What commands do, as functions for notebooks: each returns the values of the command's `--json`.

All take `host:port` of one or more brokers, Kafka client settings by name, such as
`security.protocol`, and a timeout for all requests together. They raise as the commands fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_groups.cli.config_cli import SettingsView, changed_settings
from spark_groups.cli.connecting import Brokers, IsolationLevel
from spark_groups.cli.groups_cli import (
    GROUP_STATES,
    GROUP_TYPES,
    GroupListView,
    parse_names,
    view_groups,
)
from spark_groups.cli.lag_cli import LagView, view_group_lag
from spark_groups.cli.preflight_checks import PreflightView
from spark_groups.cli.preflight_cli import checked_group, subscription_of
from spark_groups.cli.registry_check import ask_registry
from spark_groups.cli.remove_cli import REASON, RemovalView, remove_members
from spark_groups.errors import OptionsError
from spark_groups.observation.lag_times import ALERT_HOURS
from spark_groups.observation.observe import OBSERVE_TIMEOUT_S
from spark_groups.wire.security.security_settings import security_of


def groups(
    bootstrap_servers: str,
    *,
    types: Iterable[str] = (),
    states: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> GroupListView:
    """List the groups of a cluster, as `spark-groups groups` does.

    Args:
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        types: Only groups of these types, such as `consumer`; all if empty.
        states: Only groups in these states, such as `Empty`; all if empty.
        settings: Kafka client settings by name.
        timeout_s: The timeout for all requests together.

    Raises:
        OptionsError: An address, a setting, a type or a state is invalid.
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: A broker refused.
    """
    wanted_types = parse_names(types, GROUP_TYPES, "types")
    wanted_states = parse_names(states, GROUP_STATES, "states")
    with _brokers(bootstrap_servers, settings, timeout_s).cluster() as cluster:
        return view_groups(cluster.list_groups(types=wanted_types, states=wanted_states))


def lag(
    group_id: str,
    bootstrap_servers: str,
    *,
    read_committed: bool = False,
    alert_hours: float = ALERT_HOURS,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> LagView:
    """Return the lag of a group, in offsets and in time, as `spark-groups lag` does.

    Args:
        group_id: The group.
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        read_committed: Whether its members skip records of aborted transactions.
        alert_hours: Alert if retention may delete unread records within this time.
        settings: Kafka client settings by name.
        timeout_s: The timeout for all requests together.

    Raises:
        GroupNotFoundError: The group does not exist, or is no group of consumers.
        OptionsError: An address or a setting is invalid.
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: A broker refused.
    """
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    with _brokers(bootstrap_servers, settings, timeout_s).observer(level) as observer:
        return LagView(groups=(view_group_lag(observer.view(group_id), alert_hours),))


def config(
    group_id: str,
    bootstrap_servers: str,
    *,
    changes: Mapping[str, str | None] | None = None,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> SettingsView:
    """Return and change the settings of a group, as `spark-groups config` does.

    Args:
        group_id: The group, which need not exist.
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        changes: Values to set by name, such as `consumer.session.timeout.ms`; None unsets one.
        settings: Kafka client settings by name.
        timeout_s: The timeout for all requests together.

    Raises:
        OptionsError: An address, a setting or a change is invalid; nothing is changed.
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: A broker refused.
    """
    brokers = _brokers(bootstrap_servers, settings, timeout_s)
    with brokers.cluster() as cluster:
        return changed_settings(cluster, group_id, changes or {}, timeout_s)


def remove(
    group_id: str,
    bootstrap_servers: str,
    *,
    instance_ids: Iterable[str] = (),
    member_ids: Iterable[str] = (),
    all_members: bool = False,
    reason: str = REASON,
    is_dry_run: bool = False,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> RemovalView:
    """Remove members from a group, as `spark-groups remove` does.

    Args:
        group_id: The group, of either protocol.
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        instance_ids: Remove the members with these instance ids.
        member_ids: Remove the members with these member ids.
        all_members: Remove all members, in place of ids.
        reason: Appears in the coordinator's log.
        is_dry_run: Return what would be done, and change nothing.
        settings: Kafka client settings by name.
        timeout_s: The timeout for all requests together.

    Raises:
        GroupNotFoundError: The group does not exist, or is no group of consumers.
        OptionsError: An address or a setting is invalid, or no member is named.
        BrokerUnreachableError: A request failed or timed out; some may have been removed.
        ProtocolError: A broker refused.
    """
    of_instances, of_members = list(instance_ids), list(member_ids)
    if bool(of_instances or of_members) == all_members:
        raise OptionsError("give either instance_ids or member_ids, or all_members")
    with _brokers(bootstrap_servers, settings, timeout_s).cluster() as cluster:
        return remove_members(
            cluster,
            group_id,
            of_instances,
            of_members,
            all_members=all_members,
            reason=reason,
            is_dry_run=is_dry_run,
        )


def preflight(
    group_id: str,
    bootstrap_servers: str,
    *,
    topics: Iterable[str] = (),
    pattern: str | None = None,
    instance_id: str | None = None,
    schema_registry: str | None = None,
    subject: str | None = None,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> PreflightView:
    """Check whether a query can join a group, as `spark-groups preflight` does.

    Args:
        group_id: The group.
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        topics: Those that the query will read; those of the group if empty.
        pattern: Its `subscribePattern`, in place of topics.
        instance_id: The instance id of the member; None: it has none.
        schema_registry: The `schemaRegistryUrl` of the query; None: none is checked.
        subject: A subject of it whose latest Avro schema is checked, too.
        settings: Kafka client settings by name, and those named `schemaRegistry.*`.
        timeout_s: The timeout for all requests together.

    Raises:
        OptionsError: An address, a setting or the pattern is invalid, or the registry is missing.
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: An answer cannot be read.
    """
    brokers = _brokers(bootstrap_servers, settings, timeout_s)
    wanted = subscription_of(list(topics), pattern)
    answer = ask_registry(schema_registry, subject, settings or {})
    return checked_group(brokers, group_id, instance_id, wanted, answer)


def _brokers(
    bootstrap_servers: str, settings: Mapping[str, str] | None, timeout_s: float
) -> Brokers:
    security = security_of(settings, prefix="") if settings else None
    return Brokers(bootstrap_servers, timeout_s, security)
