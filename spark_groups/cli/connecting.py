"""Options that commands share, and the connections to brokers made from them."""

from __future__ import annotations

import inspect
import threading
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from spark_groups.broker.started_broker import running_broker
from spark_groups.cli.main import print_error
from spark_groups.errors import BrokerUnreachableError, OptionsError, SparkGroupsError
from spark_groups.observation.observe import (
    CLIENT_ID,
    OBSERVE_TIMEOUT_S,
    GroupObserver,
    not_answered,
)
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import RequestError
from spark_groups.wire.properties_file import read_properties
from spark_groups.wire.security.config_references import EVERYTHING
from spark_groups.wire.security.security import Security, warn_of_open_secrets
from spark_groups.wire.security.security_settings import security_of, unread_settings

REGISTRY_PREFIX: Final = "schemaRegistry."
BOOTSTRAP_SERVERS_VARIABLE: Final = "SPARK_GROUPS_BOOTSTRAP_SERVERS"


class IsolationLevel(str, Enum):
    """`isolation.level` of a group's members, by Kafka's names."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's id.")]
GroupArguments = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="The ids of one or more groups.")
]
IsolationLevelOption = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation-level",
        help="That of the group's members: with read_committed, the first unread record is none of"
        " an aborted or unfinished transaction.",
    ),
]
AlertHours = Annotated[
    float,
    typer.Option(
        "--alert-hours",
        metavar="HOURS",
        min=0.0,
        help="Alert if retention may delete unread records within this time, or within half of"
        " retention.ms if that is less.",
    ),
]
EveryPartitionFlag = Annotated[bool, typer.Option("--all", help="Show a row for every partition.")]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        help="Comma-separated bootstrap servers; default: that of `spark-groups broker start`.",
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="Timeout for all responses together.", min=0.1)
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Properties file with Kafka client settings, as for Kafka's own tools."
    ),
]


@dataclass(frozen=True, slots=True)
class Brokers:
    """Bootstrap servers, one timeout for all requests of a command, and connection security.

    All connections of a command lead to one cluster, also if an address is switched meanwhile.
    """

    bootstrap_servers: str
    timeout_s: float = OBSERVE_TIMEOUT_S
    security: Security | None = None
    registry_settings: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The settings of a schema registry, named schemaRegistry.*."""
    _identity: ClusterIdentity = field(default_factory=ClusterIdentity, compare=False, repr=False)

    @property
    def cluster_id(self) -> str | None:
        """The id of their cluster; None: no broker was reached yet, or they report none."""
        return self._identity.cluster_id

    def observer(
        self, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> GroupObserver:
        """Return an observer of groups on these brokers, whose members read at a level."""
        return GroupObserver(
            self.bootstrap_servers,
            timeout_s=self.timeout_s,
            security=self.security,
            read_committed=isolation_level is IsolationLevel.READ_COMMITTED,
            identity=self._identity,
        )

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Open the cluster; all requests together must complete within `timeout_s`.

        Raises:
            BrokerUnreachableError: A request failed or timed out; names the addresses.
        """
        cut_off_by_us = threading.Event()
        unreached: list[str] = []
        with Cluster(
            self.bootstrap_servers,
            client_id=CLIENT_ID,
            security=self.security,
            request_timeout_s=self.timeout_s,
            identity=self._identity,
        ) as cluster:

            def cut_off() -> None:
                unreached.extend(cluster.unreached())
                cut_off_by_us.set()
                cluster.shutdown()

            timer = threading.Timer(self.timeout_s, cut_off)
            timer.daemon = True
            timer.start()
            try:
                yield cluster
            except RequestError as error:
                reason = error.reason
                if cut_off_by_us.is_set():
                    reason = not_answered(self.timeout_s, unreached)
                raise BrokerUnreachableError(f"{self.bootstrap_servers}: {reason}") from error
            finally:
                timer.cancel()


@contextmanager
def usage_errors(option: str | None = None) -> Iterator[None]:
    """Turn an OptionsError into a usage error, of an option or argument if one is named.

    Raises:
        BadParameter: In place of an OptionsError.
    """
    try:
        yield
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


Shown = typing.TypeVar("Shown")


def read_each(
    group_ids: Iterable[str], read: Callable[[str], Shown]
) -> tuple[dict[str, Shown], list[SparkGroupsError]]:
    """Read several groups, so that one that cannot be read does not hide the others.

    Args:
        group_ids: The groups, in the order of the result.
        read: Reads one.

    Returns:
        The groups that could be read, and why the others could not.
    """
    shown: dict[str, Shown] = {}
    refused: list[SparkGroupsError] = []
    for group_id in dict.fromkeys(group_ids):
        try:
            shown[group_id] = read(group_id)
        except SparkGroupsError as error:  # noqa: PERF203
            refused.append(error)
    return shown, refused


def end_if_refused(refused: Iterable[SparkGroupsError], exit_code: int = 1) -> None:
    """Print on stderr why groups are not shown, and end with an exit code if there are any."""
    found = list(refused)
    for each in found:
        print_error(each)
    if found:
        raise typer.Exit(exit_code)


def named_brokers(
    bootstrap_server: BootstrapServer = None,
    timeout: Timeout = OBSERVE_TIMEOUT_S,
    command_config: CommandConfig = None,
) -> Brokers:
    """Return the brokers from the options that `connects` gives to every command.

    Raises:
        BadParameter: No broker is named or started, or an address or a setting is invalid.
    """
    if bootstrap_server is None:
        started = running_broker()
        if started is None:
            raise typer.BadParameter(
                f"no broker given: set --bootstrap-server or {BOOTSTRAP_SERVERS_VARIABLE}, or start"
                " a broker with `spark-groups broker start`",
                param_hint="--bootstrap-server",
            )
        bootstrap_server = started.bootstrap_servers
    with usage_errors("--bootstrap-server"):
        parse_bootstrap_servers(bootstrap_server)
    if command_config is None:
        return Brokers(bootstrap_server, timeout)
    with usage_errors("--command-config"):
        settings = read_properties(command_config)
        security = security_of(settings, prefix="", allowed=EVERYTHING)
    registry = {each: text for each, text in settings.items() if each.startswith(REGISTRY_PREFIX)}
    unread = unread_settings(settings.keys() - registry.keys())
    if unread:
        typer.echo(f"spark-groups: {command_config}: not used here: {', '.join(unread)}", err=True)
    warn_of_open_secrets(security)
    return Brokers(bootstrap_server, timeout, security, registry)


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `brokers: Brokers` by the options of `named_brokers`."""
    kept = [each for each in _parameters(command) if each.name != "brokers"]
    options = _parameters(named_brokers)
    names = {option.name for option in options}

    def run(**arguments: Any) -> None:
        connecting = {name: value for name, value in arguments.items() if name in names}
        rest = {name: value for name, value in arguments.items() if name not in names}
        command(brokers=named_brokers(**connecting), **rest)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = sorted((*kept, *options), key=lambda each: each.default is not each.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
    ]
