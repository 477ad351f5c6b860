"""Reads topics as a member of a consumer group and writes them as Parquet, or to the console.

    spark-submit --master 'local[2]' jobs/consume.py --config conf/consume.toml --name flights-1

Everything in the file can be set on the command line instead. SIGTERM or Ctrl-C ends it cleanly:
the running batch ends, its offsets are committed, and the member leaves the group.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from spark_groups.errors import OptionsError
from spark_groups.spark.job.config import load_job

SHORTCUTS = {
    "--name": "application.name",
    "--bootstrap-servers": "source.kafka.bootstrap.servers",
    "--group": "source.kafka.group.id",
    "--topics": "source.subscribe",
    "--checkpoint": "query.checkpointLocation",
    "--trigger": "query.trigger",
    "--output": "sink.path",
}
Text = Optional[str]  # noqa: UP045 - Typer reads it on Python 3.10 too


def consume(
    *,
    config: Annotated[Optional[Path], typer.Option(help="A TOML file.")] = None,  # noqa: UP045
    name: Annotated[Text, typer.Option(help="Names the application and its directories.")] = None,
    bootstrap_servers: Annotated[Text, typer.Option(help="Brokers as host:port,...")] = None,
    group: Annotated[Text, typer.Option(help="The consumer group.")] = None,
    topics: Annotated[Text, typer.Option(help="Topics, separated by commas.")] = None,
    output: Annotated[Text, typer.Option(help="Holds a directory per application.")] = None,
    checkpoint: Annotated[Text, typer.Option(help="Holds a checkpoint per application.")] = None,
    trigger: Annotated[Text, typer.Option(help="2s, for example, or availableNow.")] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Overrides any key; repeatable."),
    ] = None,
) -> None:
    """Run the job; its help is the module's docstring."""
    given = [name, bootstrap_servers, group, topics, checkpoint, trigger, output]
    overrides = [
        (argument, key, value)
        for (argument, key), value in zip(SHORTCUTS.items(), given, strict=True)
        if value is not None
    ]
    for setting in settings or ():
        key, _, value = setting.partition("=")
        overrides.append((f"--set {key}", key, value))
    try:
        options = load_job(config, overrides)
        # Only now: help and wrong options need neither Spark nor a JVM.
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from spark_groups.spark.job.run import run_job  # noqa: PLC0415

        builder = SparkSession.builder
        if options.application.name:
            builder = builder.appName(options.application.name)
        run_job(builder.getOrCreate(), options)
    except OptionsError as error:
        typer.echo(f"consume.py: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    consume.__doc__ = __doc__
    typer.run(consume)
