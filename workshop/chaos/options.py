"""The options of `make chaos`."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from spark_groups.cli.table_names import TableKind
from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.members.kinds import add_arguments, check_counts
from workshop.chaos.plants import Plant
from workshop.chaos.results import runs
from workshop.chaos.systems.record import Values
from workshop.chaos.systems.tables import PARTITION_BY, Form
from workshop.parts.kafka_cluster import NODES

QUERIES: Final = 5
PER_SECOND: Final = 300.0
OF_AVRO: Final[Mapping[str, Any]] = MappingProxyType(
    {"queries": 0, "plain_consumers": 0, "applications": 3, "sinks": [TableKind.DELTA]}
)
"""The defaults where members decode values: only applications do."""


def parse(arguments: Sequence[str] | None, text: str) -> argparse.Namespace:
    """Return the options of a run, its seed among them, and the command that repeats it.

    Wrong options end the program.

    Args:
        arguments: Those of the command line; None: of this process.
        text: What the program does; its first line is the program's own.
    """
    outputs = outputs_parser()
    parser = parser_of(outputs, text)
    chosen = parser.parse_args(arguments)
    if chosen.values is Values.AVRO:
        parser.set_defaults(**OF_AVRO)
        chosen = parser.parse_args(arguments)
    for wrong in _wrong(chosen):
        parser.error(wrong)
    _, made_of = outputs.parse_known_args(arguments)
    if chosen.seed is None:
        chosen.seed = time.time_ns() % 1_000_000
        made_of += ["--seed", str(chosen.seed)]
    chosen.command = shlex.join(["python", "-m", "workshop.chaos.run", *made_of])
    return chosen


def _wrong(chosen: argparse.Namespace) -> Iterator[str]:
    if chosen.record and chosen.plant:
        yield "--record is for runs without a planted bug"
    if {*chosen.tables} - {Form.PARTITIONED} and chosen.values is not Values.AVRO:
        yield "--tables upserts and routes need --values avro, whose members are all applications"
    if Form.PARTITIONED in chosen.tables and PARTITION_BY.keys().isdisjoint(chosen.sinks):
        yield "--tables partitioned needs --sinks delta or iceberg"
    least = 0 if chosen.values is Values.AVRO else 1
    if not (chosen.minutes > 0 and least <= chosen.queries <= 8 and chosen.rows_per_second > 0):
        yield "--minutes and --rows-per-second are above 0, --queries is 1 to 8"
    if FaultClass.CLUSTER in chosen.faults and chosen.brokers > 1:
        yield "--faults cluster needs --brokers 1: it starts a second one"
    if wrong := check_counts(chosen):
        yield wrong


def outputs_parser() -> argparse.ArgumentParser:
    """Return the options that change nothing in a run, only where its results go."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--keep", type=Path, help="a directory for all files, kept")
    parser.add_argument("--page", type=Path, help="a file for the page with the timeline")
    parser.add_argument("--record", action="store_true", help=f"note the run in {runs.RUNS.name}")
    parser.add_argument("--json", action="store_true", help="the report as JSON, on stdout")
    return parser


def parser_of(outputs: argparse.ArgumentParser, text: str) -> argparse.ArgumentParser:
    """Return all options.

    Args:
        outputs: Those of `outputs_parser`.
        text: What the program does; its first line is the program's own.
    """
    parser = argparse.ArgumentParser(
        prog="make chaos",
        parents=[outputs],
        description=text.split("\n", 2)[2],
        epilog="example: python -m workshop.chaos.run --minutes 2 --seed 7 --json >report.json",
    )
    parser.add_argument("--minutes", type=float, default=12.0, help="of faults; default 12")
    parser.add_argument("--seed", type=int, help="the seed; default: another each time")
    parser.add_argument(
        "--queries", type=int, default=QUERIES, help=f"1 to 8 members; default {QUERIES}"
    )
    add_arguments(parser)
    parser.add_argument(
        "--brokers",
        type=int,
        choices=(1, NODES),
        default=1,
        help=f"{NODES}: brokers have faults, too; default 1",
    )
    parser.add_argument(
        "--rows-per-second",
        type=float,
        default=PER_SECOND,
        help=f"records produced in a second; default {PER_SECOND:g}",
    )
    parser.add_argument(
        "--sinks",
        type=_kinds,
        default=[TableKind.SQLITE],
        help=f"tables, between commas: {', '.join(each.value for each in TableKind)};"
        " default sqlite",
    )
    parser.add_argument(
        "--values",
        type=Values,
        default=Values.TEXT,
        metavar="FORMAT",
        help="text, or avro: a registry has the schemas, writers change theirs, and applications"
        " decode; default text",
    )
    parser.add_argument(
        "--tables",
        type=_forms,
        default=[],
        metavar="FORMS",
        help="tables that are not plain, between commas: partitioned, for Delta and Iceberg; and,"
        " with --values avro, upserts, a table with the last record of each key, and routes, one"
        " for each of 20 topics; default none",
    )
    parser.add_argument(
        "--plant",
        type=Plant,
        metavar="BUG",
        help=f"a bug that the run has to find: {', '.join(each.value for each in Plant)}",
    )
    parser.add_argument(
        "--faults",
        type=_classes,
        default=[],
        metavar="CLASSES",
        help=f"further faults: {', '.join(each.value for each in FaultClass)}; default none",
    )
    return parser


def _kinds(text: str) -> list[TableKind]:
    """Read the names of tables; each once.

    Raises:
        ValueError: There is no such table.
    """
    return list(dict.fromkeys(TableKind(each) for each in text.split(",")))


def _forms(text: str) -> list[Form]:
    """Read the forms of tables; each once.

    Raises:
        ValueError: There is no such form.
    """
    return list(dict.fromkeys(Form(each) for each in text.split(",") if each))


def _classes(text: str) -> list[FaultClass]:
    """Read the names of further faults; each once.

    Raises:
        ValueError: There are no such faults.
    """
    return list(dict.fromkeys(FaultClass(each) for each in text.split(",") if each))
