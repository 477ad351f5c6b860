"""The `spark-groups` command."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, Final

import typer

from spark_groups.errors import OptionsError, SparkGroupsError
from spark_groups.kafka.snapshots import read_snapshots
from spark_groups.ops.broker_cli import broker_app
from spark_groups.ops.broker_state import running_broker
from spark_groups.ops.observe import OBSERVE_TIMEOUT_S, GroupObserver
from spark_groups.ops.output import ConsoleOutput, JsonOutput, Output
from spark_groups.ops.views import view_group

BOOTSTRAP_SERVERS_VARIABLE: Final = "SPARK_GROUPS_BOOTSTRAP_SERVERS"
DISTRIBUTION: Final = "spark-groups"

app = typer.Typer(
    help="Structured Streaming queries as members of Kafka consumer groups.\n\n"
    "Example: spark-groups describe flight-readers --bootstrap-server localhost:9092",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(broker_app, name="broker")

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        help="Brokers, separated by commas; by default the one of `spark-groups broker start`.",
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{DISTRIBUTION} {installed_version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Structured Streaming queries as members of Kafka consumer groups."""


@app.command()
def describe(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's id.")],
    bootstrap_server: BootstrapServer = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    every_partition: Annotated[
        bool, typer.Option("--all", help="Give every partition a row, however many there are.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds for all answers.", min=0.1)
    ] = OBSERVE_TIMEOUT_S,
) -> None:
    """Show who owns, waits for and gives up what in a group, and how far behind it is.

    Example: spark-groups describe flight-readers --bootstrap-server localhost:9092

    Exit code 1 if there is no such group or no broker answers.
    """
    output: Output = JsonOutput() if as_json else ConsoleOutput(every_partition=every_partition)
    with _observer(bootstrap_server, timeout) as observer:
        reading = observer.observe(group)
    output.group(view_group(reading, read_snapshots(group)))


def _observer(bootstrap_server: str | None, timeout_s: float) -> GroupObserver:
    """Return an observer of the cluster that is meant."""
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
        return GroupObserver(bootstrap_server, timeout_s=timeout_s)
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from error


def main() -> None:
    """Run the command; what this package raises on purpose is one message and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks is no reason to show nothing.
            stream.reconfigure(errors="replace")
    try:
        app()
    except SparkGroupsError as error:
        typer.echo(f"spark-groups: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
