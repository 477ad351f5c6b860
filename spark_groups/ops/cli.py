"""The `spark-groups` command."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, Final

import typer

from spark_groups.errors import SparkGroupsError, printable
from spark_groups.ops.broker_cli import broker_app
from spark_groups.ops.config_cli import config
from spark_groups.ops.delete_cli import delete, delete_offsets
from spark_groups.ops.describe_cli import describe
from spark_groups.ops.groups_cli import groups
from spark_groups.ops.lag_cli import lag
from spark_groups.ops.remove_cli import remove
from spark_groups.ops.replay_cli import replay
from spark_groups.ops.reset_cli import reset_offsets
from spark_groups.ops.serve_cli import serve
from spark_groups.ops.simulate_cli import simulate
from spark_groups.ops.validate_regex_cli import validate_regex
from spark_groups.ops.watch_cli import watch

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


app.command()(groups)
app.command()(describe)
app.command()(lag)
app.command()(watch)
app.command()(serve)
app.command("validate-regex")(validate_regex)
app.command()(config)
app.command()(remove)
app.command("reset-offsets")(reset_offsets)
app.command()(delete)
app.command("delete-offsets")(delete_offsets)
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
        lines = [printable(line) for line in str(error).split("\n")]
        typer.echo("spark-groups: " + "\n".join(lines), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
