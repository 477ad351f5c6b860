"""The `spark-groups` command: each command is imported when it is called."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from spark_groups import extensions
from spark_groups.errors import SparkGroupsError, printable
from spark_groups.systems import check_system

DISTRIBUTION: Final = "spark-groups"
COMMANDS: Final[Mapping[str, str]] = {
    "broker": "broker_cli:broker_app",
    "doctor": "doctor_cli:doctor",
    "groups": "groups_cli:groups",
    "describe": "describe_cli:describe",
    "lag": "lag_cli:lag",
    "watch": "watch_cli:watch",
    "serve": "serve_cli:serve",
    "preflight": "preflight_cli:preflight",
    "validate-regex": "validate_regex_cli:validate_regex",
    "config": "config_cli:config",
    "remove": "remove_cli:remove",
    "reset-offsets": "reset_cli:reset_offsets",
    "table": "table_cli:table_app",
    "delete": "delete_cli:delete",
    "delete-offsets": "delete_cli:delete_offsets",
}
"""Module in this room and function, or Typer of sub-commands, by the command's name."""


def _loaded(name: str) -> Any:
    if name in extensions.NAMES[extensions.COMMANDS]:
        return extensions.load(extensions.COMMANDS, name)
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), attribute)


class _Commands(Mapping[str, Any]):
    """The commands in the order of the table, then those of the laboratory if it is installed.

    Each is imported on first use. One of the laboratory, without it, is an error that names it.
    """

    def __getitem__(self, name: str) -> Any:
        loaded = _loaded(name)
        if isinstance(loaded, typer.Typer):
            group = typer.main.get_group(loaded)
            group.name = name
            return group
        single = typer.Typer(add_completion=False)
        single.command(name)(loaded)
        return typer.main.get_command(single)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS or name in extensions.NAMES[extensions.COMMANDS]

    def __iter__(self) -> Iterator[str]:
        return iter((*COMMANDS, *extensions.installed(extensions.COMMANDS)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
