"""The options by which every command finds its brokers, and the connections that come of them."""

from __future__ import annotations

import inspect
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from spark_groups.errors import BrokerUnreachableError, OptionsError
from spark_groups.observation.observe import CLIENT_ID, OBSERVE_TIMEOUT_S, GroupObserver
from spark_groups.ops.started_broker import running_broker
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import RequestError
from spark_groups.wire.properties_file import read_properties
from spark_groups.wire.security.config_references import EVERYTHING
from spark_groups.wire.security.security import Security, warn_of_open_secrets
from spark_groups.wire.security.settings import security_of

BOOTSTRAP_SERVERS_VARIABLE: Final = "SPARK_GROUPS_BOOTSTRAP_SERVERS"

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's id.")]
GroupArguments = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="The ids of one or more groups.")
]
EveryPartitionFlag = Annotated[
    bool, typer.Option("--all", help="Give every partition a row, however many there are.")
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing, and show what would be done.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the same as JSON.")]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        help="Brokers, separated by commas; by default the one of `spark-groups broker start`.",
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="Seconds for all answers.", min=0.1)
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="How to connect to secured brokers: Kafka's own client settings, as its tools take.",
    ),
]


@dataclass(frozen=True, slots=True)
class Brokers:
    """The cluster that a command is about.

    Args:
        bootstrap_servers: `host:port` of one or more brokers.
        timeout_s: Seconds in which all answers must be there.
        security: How to secure connections; None: not at all.
    """

    bootstrap_servers: str
    timeout_s: float = OBSERVE_TIMEOUT_S
    security: Security | None = None

    def observer(self) -> GroupObserver:
        """Return what reads groups from these brokers."""
        return GroupObserver(
            self.bootstrap_servers, timeout_s=self.timeout_s, security=self.security
        )

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Open the cluster; whatever is asked of it together ends within `timeout_s`.

        Raises:
            BrokerUnreachableError: Not all answers came in time; names the addresses.
        """
        cut_off_by_us = threading.Event()
        with Cluster(
            self.bootstrap_servers,
            client_id=CLIENT_ID,
            security=self.security,
            request_timeout_s=self.timeout_s,
        ) as cluster:

            def cut_off() -> None:
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
                    reason = f"not everything was answered within {self.timeout_s:g} s"
                raise BrokerUnreachableError(f"{self.bootstrap_servers}: {reason}") from error
            finally:
                timer.cancel()


def named_brokers(
    bootstrap_server: BootstrapServer = None,
    timeout: Timeout = OBSERVE_TIMEOUT_S,
    command_config: CommandConfig = None,
) -> Brokers:
    """Return the brokers that somebody means; its parameters are options of every command.

    Raises:
        BadParameter: No broker is named and none was started, an address is malformed, or the
            settings are wrong.
    """
    if bootstrap_server is None:
        started = running_broker()
        if started is None:
            raise typer.BadParameter(
                f"no broker is named: give one, set {BOOTSTRAP_SERVERS_VARIABLE}, or start one with"
                " `spark-groups broker start`",
                param_hint="--bootstrap-server",
            )
        bootstrap_server = started.bootstrap_servers
    try:
        parse_bootstrap_servers(bootstrap_server)
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from error
    return Brokers(bootstrap_server, timeout, _security(command_config))


def _security(command_config: Path | None) -> Security | None:
    """Return what a file of Kafka's client settings says about security."""
    if command_config is None:
        return None
    try:
        security = security_of(read_properties(command_config), prefix="", allowed=EVERYTHING)
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint="--command-config") from error
    warn_of_open_secrets(security)
    return security


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `named_brokers` in place of its parameter `brokers`.

    So an option that says how to connect is written once, for every command there is.

    Args:
        command: A command with a parameter `brokers: Brokers`.
    """
    kept = [each for each in _parameters(command) if each.name != "brokers"]
    options = _parameters(named_brokers)
    names = {each.name for each in options}

    def run(**arguments: Any) -> None:
        connecting = {name: value for name, value in arguments.items() if name in names}
        rest = {name: value for name, value in arguments.items() if name not in names}
        command(brokers=named_brokers(**connecting), **rest)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = sorted((*kept, *options), key=lambda each: each.default is not each.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return a function's parameters, their annotations as values."""
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        each.replace(annotation=hints[each.name])
        for each in inspect.signature(function).parameters.values()
    ]
