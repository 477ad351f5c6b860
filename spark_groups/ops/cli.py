"""The `spark-groups` command."""

from __future__ import annotations

import sys

import typer

from spark_groups.errors import SparkGroupsError
from spark_groups.ops.broker_cli import broker_app

app = typer.Typer(
    help="Structured Streaming queries as members of Kafka consumer groups.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(broker_app, name="broker")


def main() -> None:
    """Run the command; what this package raises on purpose is one message and exit code 1."""
    try:
        app()
    except SparkGroupsError as error:
        typer.echo(f"spark-groups: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
