"""The `spark-groups` command: each command is imported when it is called."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from spark_groups.errors import SparkGroupsError, printable
from spark_groups.systems import check_system

DISTRIBUTION: Final = "spark-groups"
COMMANDS: Final[Mapping[str, str]] = {
    "broker": "lab.commands.broker_cli:broker_app",
    "doctor": "ops.doctor_cli:doctor",
    "groups": "ops.groups_cli:groups",
    "describe": "ops.describe_cli:describe",
    "lag": "ops.lag_cli:lag",
    "watch": "ops.watch_cli:watch",
    "serve": "ops.serve_cli:serve",
    "preflight": "ops.preflight_cli:preflight",
    "validate-regex": "ops.validate_regex_cli:validate_regex",
    "config": "ops.config_cli:config",
    "remove": "ops.remove_cli:remove",
    "reset-offsets": "ops.reset_cli:reset_offsets",
    "table": "commands.table_cli:table_app",
    "delete": "ops.delete_cli:delete",
    "delete-offsets": "ops.delete_cli:delete_offsets",
    "simulate": "lab.commands.simulate_cli:simulate",
    "replay": "lab.commands.replay_cli:replay",
}
"""Module in `spark_groups` and function, or Typer of sub-commands, by the command's name."""


class _Commands(Mapping[str, Any]):
    """The commands in the order of the table; each is imported on first use."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        loaded = getattr(importlib.import_module(f"spark_groups.{module}"), attribute)
        if isinstance(loaded, typer.Typer):
            group = typer.main.get_group(loaded)
            group.name = name
            return group
        single = typer.Typer(add_completion=False)
        single.command(name)(loaded)
        return typer.main.get_command(single)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """The top-level command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()


app = typer.Typer(
    cls=_Group,
    help="Structured Streaming queries as members of Kafka consumer groups.\n\n"
    "Example: spark-groups describe flight-readers --bootstrap-server localhost:9092",
    no_args_is_help=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
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


def print_error(error: SparkGroupsError) -> None:
    """Print on stderr why a command, or a part of it, failed."""
    lines = [printable(line) for line in str(error).split("\n")]
    typer.echo("spark-groups: " + "\n".join(lines), err=True)


def main() -> None:
    """Run a command; errors of this package become one message and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names may hold characters that the terminal's encoding lacks.
            stream.reconfigure(errors="replace")
    try:
        check_system(sys.platform)
        app()
    except SparkGroupsError as error:
        print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
