"""The `spark-groups` command."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, Final

import typer

from spark_groups.errors import SparkGroupsError
from spark_groups.kafka.snapshots import read_snapshots
from spark_groups.ops.broker_cli import broker_app
from spark_groups.ops.config_cli import config
from spark_groups.ops.connecting import Brokers, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import ConsoleOutput, JsonOutput, Output
from spark_groups.ops.remove_cli import remove
from spark_groups.ops.replay_cli import replay
from spark_groups.ops.simulate_cli import simulate
from spark_groups.ops.views import view_group

DISTRIBUTION: Final = "spark-groups"

app = typer.Typer(
    help="Structured Streaming queries as members of Kafka consumer groups.\n\n"
    "Example: spark-groups describe flight-readers --bootstrap-server localhost:9092",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(broker_app, name="broker")


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
@connects
def describe(
    group: GroupArgument,
    brokers: Brokers,
    as_json: JsonFlag = False,
    every_partition: Annotated[
        bool, typer.Option("--all", help="Give every partition a row, however many there are.")
    ] = False,
) -> None:
    """Show who owns, waits for and gives up what in a group, and how far behind it is.

    Example: spark-groups describe flight-readers --bootstrap-server localhost:9092

    Exit code 1 if there is no such group or no broker answers.
    """
    output: Output = JsonOutput() if as_json else ConsoleOutput(every_partition=every_partition)
    with brokers.observer() as observer:
        reading = observer.observe(group)
    output.group(view_group(reading, read_snapshots(group)))


app.command()(config)
app.command()(remove)
app.command()(simulate)
app.command()(replay)


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
