"""The command line of a job: what overrides its file, and how it ends.

Help and wrong options need no JVM: a session is made when everything is known to be right.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_config import load_job
from spark_groups.spark.jobs.job_options import Job


@dataclass(frozen=True, slots=True)
class Argument:
    """A name on the command line for a key of the configuration.

    Args:
        name: As in `--group`.
        key: As in `source.kafka.group.id`.
        meaning: What the help says of it.
        value: What it sets without a value behind it; None: it takes one.
    """

    name: str
    key: str
    meaning: str
    value: str | None = None


COMMON: Final = (
    Argument("--name", "application.name", "Names the application and its directories."),
    Argument("--bootstrap-servers", "source.kafka.bootstrap.servers", "Brokers as host:port,..."),
    Argument("--group", "source.kafka.group.id", "The consumer group."),
    Argument("--topics", "source.subscribe", "Topics, separated by commas."),
    Argument("--checkpoint", "query.checkpointLocation", "Holds a checkpoint per application."),
    Argument("--trigger", "query.trigger", "2s, for example, or availableNow."),
)
OUTPUT: Final = Argument("--output", "sink.path", "Holds a directory per application.")


def main(
    description: str | None,
    kind: type[Job],
    run: Callable[[SparkSession, Job], object],
    further: Sequence[Argument] = (),
) -> None:
    """Read the command line, and run a job; wrong options end it with status 2.

    Args:
        description: The help: what the job does, and how it is called.
        kind: What its configuration consists of.
        run: Runs it.
        further: Its own arguments, beside those that all jobs have.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    arguments = (*COMMON, *further)
    parser = _parser(description, arguments)
    given = parser.parse_args()
    try:
        options = load_job(kind, given.config, _settings(given, arguments))
        builder = SparkSession.builder
        if options.application.name:
            builder = builder.appName(options.application.name)
        run(builder.getOrCreate(), options)
    except OptionsError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        sys.exit(2)


def _parser(description: str | None, arguments: Sequence[Argument]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="A TOML file.")
    for each in arguments:
        if each.value is None:
            parser.add_argument(each.name, dest=each.name, metavar="TEXT", help=each.meaning)
        else:
            parser.add_argument(
                each.name, dest=each.name, action="store_const", const=each.value, help=each.meaning
            )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="Overrides any key; repeatable.",
    )
    return parser


def _settings(
    given: argparse.Namespace, arguments: Sequence[Argument]
) -> Iterator[tuple[str, str, str]]:
    """Return what the command line sets: the argument that says so, the key, the value."""
    for each in arguments:
        value = getattr(given, each.name)
        if value is not None:
            yield each.name, each.key, value
    for setting in given.set:
        key, _, value = setting.partition("=")
        yield f"--set {key}", key, value
