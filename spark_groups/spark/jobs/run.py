"""A job: topics of a group to wherever it writes them, until it is told to end.

Help and wrong options need no JVM: a session is made when everything is known to be right.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.errors import OptionsError
from spark_groups.spark.control.listener import listen
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.jobs.job_options import (
    AVAILABLE_NOW,
    ConsumeOptions,
    Job,
    JobOptions,
    load_job,
)
from spark_groups.spark.jobs.output_guard import HadoopFiles, OutputGuard
from spark_groups.spark.source.registration import register
from spark_groups.spark.tables.table import FencedTable
from spark_groups.spark.tables.write import TableWriter, write_table
from spark_groups.wire.security.config_references import Allowed, resolved

logger = logging.getLogger(__name__)

Write = Callable[[DataFrame], DataStreamWriter]
"""Says how the rows of a job are written."""
Arguments = Mapping[str, tuple[str, str]]
"""Names on the command line: the key of the configuration, and what the help says of it."""

COMMON: Final[Arguments] = {
    "--name": ("application.name", "Names the application and its directories."),
    "--bootstrap-servers": ("source.kafka.bootstrap.servers", "Brokers as host:port,..."),
    "--group": ("source.kafka.group.id", "The consumer group."),
    "--topics": ("source.subscribe", "Topics, separated by commas."),
    "--checkpoint": ("query.checkpointLocation", "Holds a checkpoint per application."),
    "--trigger": ("query.trigger", "2s, for example, or availableNow."),
}
OUTPUT: Final[Arguments] = {"--output": ("sink.path", "Holds a directory per application.")}


def main(
    description: str | None,
    kind: type[Job],
    run: Callable[[SparkSession, Job], object],
    further: Arguments | None = None,
    flags: Arguments | None = None,
) -> None:
    """Read the command line, and run a job; wrong options end it with status 2.

    Args:
        description: The help: what the job does, and how it is called.
        kind: What its configuration consists of.
        run: Runs it.
        further: Its own arguments, beside those that all jobs have.
        flags: Its arguments that take no value, and set their key to true.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    arguments = {**COMMON, **(further or {}), **(flags or {})}
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="A TOML file.")
    for name, (_, meaning) in arguments.items():
        if name in (flags or {}):
            parser.add_argument(name, dest=name, action="store_const", const="true", help=meaning)
        else:
            parser.add_argument(name, dest=name, metavar="TEXT", help=meaning)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="Overrides any key; repeatable.",
    )
    given = parser.parse_args()
    try:
        options = load_job(kind, given.config, _settings(given, arguments))
        builder = SparkSession.builder
        if options.application_name:
            builder = builder.appName(options.application_name)
        run(builder.getOrCreate(), options)
    except OptionsError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        sys.exit(2)


def _settings(given: argparse.Namespace, arguments: Arguments) -> Iterator[tuple[str, str, str]]:
    """Return what the command line sets: the argument that says so, the key, the value."""
    for name, (key, _) in arguments.items():
        if (value := getattr(given, name)) is not None:
            yield name, key, value
    for setting in given.set:
        key, _, value = setting.partition("=")
        yield f"--set {key}", key, value


def run_job(spark: SparkSession, options: JobOptions, write: Write) -> None:
    """Run the query until it ends: by itself, with an error, or on SIGTERM.

    Args:
        spark: The session; it is not stopped.
        options: The checked configuration.
        write: Says how its rows are written.

    Raises:
        OptionsError: The output is another query's, Spark has no such sink, or the session is one
            of Spark Connect.
        StreamingQueryException: The query failed.
    """
    end = stop_on_sigterm(spark, timeout_s=options.stop_timeout_s)
    # It listens for as long as this process lives: the end of a query is to be heard, too.
    listen(spark)
    query = start_job(spark, options, write)
    logger.info("query %s runs; SIGTERM or Ctrl-C ends it after its batch", query.id)
    end.await_termination(query)


def start_job(spark: SparkSession, options: JobOptions, write: Write) -> StreamingQuery:
    """Start the query.

    Args:
        spark: The session.
        options: The checked configuration.
        write: Says how its rows are written.

    Raises:
        OptionsError: The output is another query's, or Spark has no such sink.
    """
    register(spark)
    application = options.application_name or spark.sparkContext.applicationId
    rows = spark.readStream.format("kafka-group").options(**dict(options.source)).load()
    is_fenced = isinstance(options, ConsumeOptions) and options.is_fenced
    if options.select_expr and not is_fenced:
        rows = rows.selectExpr(*options.select_expr)
    writer = write(rows).queryName(application)
    if options.trigger_s == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        interval_ms = round(float(options.trigger_s) * 1000)
        writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
    checkpoint = f"{options.checkpoint_location.rstrip('/')}/{application}"
    writer = writer.option("checkpointLocation", checkpoint)
    if not isinstance(options, ConsumeOptions) or options.sink_format == "console" or is_fenced:
        return writer.start()
    output = f"{options.sink_path.rstrip('/')}/{application}"
    if options.sink_format != "parquet":
        # A table of Delta knows its writers by their queries' ids.
        return start_into(writer, options.sink_format, output)
    guard = OutputGuard(HadoopFiles(spark), output=output, checkpoint=checkpoint)
    guard.claim()
    query = start_into(writer, options.sink_format, output)
    guard.confirm(str(query.id))
    return query


def written(rows: DataFrame, options: ConsumeOptions) -> DataStreamWriter:
    """Return a writer of rows into the sink that a configuration names, still without a path.

    Args:
        rows: Streaming rows; for a table as the source has them.
        options: The configuration.

    Raises:
        OptionsError: The options of a table are wrong, or its package is missing.
    """
    if options.is_fenced:
        return rows.writeStream.foreachBatch(_table_writer(options))
    writer = rows.writeStream.format(options.sink_format).outputMode("append")
    return writer.options(**options.sink_options)


def _table_writer(options: ConsumeOptions) -> TableWriter:
    """Return what writes the batches of a job into its table."""
    try:
        allowed = Allowed.by(os.environ)
        given = {
            name: resolved(str(value), allowed) for name, value in options.sink_options.items()
        }
    except ValueError as error:
        raise OptionsError(f"sink.options: {error}") from None
    transform = (
        (lambda rows: rows.selectExpr(*options.select_expr)) if options.select_expr else None
    )
    return write_table(_table(options, given), transform)


def _table(options: ConsumeOptions, given: Mapping[str, str]) -> FencedTable:
    # Each needs a package of its own.
    if options.sink_format == "delta":
        from spark_groups.spark.tables.delta import delta_table  # noqa: PLC0415

        return delta_table(options.sink_path, given)
    from spark_groups.spark.tables.postgres import postgres_table  # noqa: PLC0415

    return postgres_table(**given)


def start_into(writer: DataStreamWriter, sink_format: str, output: str) -> StreamingQuery:
    """Start a query that writes files.

    Args:
        writer: The writer, without a path.
        sink_format: Which files.
        output: Their directory.

    Raises:
        OptionsError: Spark has no such sink.
    """
    try:
        return writer.start(output)
    except (PySparkException, Py4JJavaError) as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise OptionsError(
            f"sink.format: Spark has no {sink_format} here: start it with its package, for Delta"
            " Lake --packages io.delta:delta-spark_2.13 of the version that fits this Spark"
        ) from error
