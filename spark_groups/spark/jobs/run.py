"""Runs a job: starts its query, and waits until the query ends.

Options are checked before a session starts, so help and errors need no JVM.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.errors import OptionsError, TableError, UnsupportedSystemError
from spark_groups.spark.control.application_query import start
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.control.listener import listen
from spark_groups.spark.control.shutdown import CleanEnd, stop_on_sigterm
from spark_groups.spark.control.spark_log import has_sparks_log4j
from spark_groups.spark.hadoop_files import HadoopFiles
from spark_groups.spark.jobs.job_options import (
    AVAILABLE_NOW,
    LETTER_TABLE,
    TOPIC,
    ConsumeOptions,
    Job,
    JobOptions,
    load_job,
)
from spark_groups.spark.options.packed import Load
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.arrow_map import map_in_arrow
from spark_groups.spark.reading.reader import load_reader
from spark_groups.spark.schemas.row_formats import UNDECODABLE
from spark_groups.spark.source.registration import register
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from spark_groups.spark.tables.table import FencedTable
from spark_groups.spark.tables.write import TableWriter, write_table
from spark_groups.systems import check_system
from spark_groups.wire.security.config_references import Allowed, resolved

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S: Final = 0.2
"""How often a wait looks whether a signal came."""
CLIENT_ID: Final = "kafka.client.id"
WRITTEN_BY: Final = "_written_by"
SINK_LOG: Final = "_spark_metadata"
LOG_LEVEL: Final = "spark.log.level"
SOCKET_DIRECTORY: Final = "spark.python.unix.domain.socket.dir"
SOCKET_DIRECTORY_BYTES_MAX: Final = 60
"""A path has 107 bytes on Linux and 103 on macOS, and Spark's file names have 42."""
_CONNECT: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

Write = Callable[[DataFrame], DataStreamWriter]
"""Returns the writer of a job's rows."""
Run = Callable[[Callable[[], StreamingQuery], Callable[[StreamingQuery], object]], object]
"""Runs a query: gets what starts it, and what waits for its end."""
Arguments = Mapping[str, tuple[str, str]]
"""By command-line name: the configuration key, and the help text."""


class ExitCode(IntEnum):
    """The exit code of a job, with its meaning."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Return the code with its meaning."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    ENDED = (
        0,
        "The query ended by itself: with `availableNow`, the rows that existed at its start are"
        " written, and their offsets are committed.",
    )
    FAILED = (
        1,
        "The query failed; the log ends with the error. A restart from the same checkpoint reads"
        " its batch again.",
    )
    REFUSED = (
        2,
        "The arguments, the configuration, the output of another query or the operating system are"
        " wrong: nothing was read, and a retry without a change fails again.",
    )
    INTERRUPTED = (130, "Ctrl-C: as after SIGTERM.")
    TERMINATED = (
        143,
        "SIGTERM: the running batch ended and its offsets are committed, unless the log reports"
        " that it took longer than `query.stopTimeout`. `availableNow` may have rows left.",
    )


COMMON: Final[Arguments] = {
    "--name": ("application.name", "Name of the application, its member and its directories."),
    "--bootstrap-servers": ("source.kafka.bootstrap.servers", "Brokers as host:port,..."),
    "--group": ("source.kafka.group.id", "The consumer group."),
    "--topics": ("source.subscribe", "Topics, separated by commas."),
    "--checkpoint": ("query.checkpointLocation", "Parent directory of checkpoints."),
    "--trigger": ("query.trigger", "An interval such as 2s, or availableNow."),
}
OUTPUT: Final[Arguments] = {"--output": ("sink.path", "Parent directory of outputs.")}


def main(
    description: str | None,
    kind: type[Job],
    run: Callable[[SparkSession, Job], object],
    further: Arguments | None = None,
    flags: Arguments | None = None,
) -> None:
    """Parse the command line and run a job; the process exits with an `ExitCode`.

    `flags` take no value, and set their key to true.
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
        help="Override any key; repeatable.",
    )
    given = parser.parse_args()
    try:
        check_system(sys.platform)
        options = load_job(kind, given.config, _settings(given, arguments))
        run(session(options.application_name), options)
    except (OptionsError, UnsupportedSystemError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        sys.exit(ExitCode.REFUSED)
    except TableError as error:
        # Not the arguments alone: the table may be reached, or have the columns, the next time.
        sys.stderr.write(f"{parser.prog}: {error}\n")
        sys.exit(ExitCode.FAILED)


def session(application_name: str | None) -> SparkSession:
    """Return the job's session.

    Unless configured, its Python processes use unix sockets, and Spark logs from WARN on: of its
    lines at INFO few matter, and they hide those of the group's members.
    """
    builder = SparkSession.builder
    if application_name:
        builder = builder.appName(application_name)
    if any(os.environ.get(each) for each in _CONNECT):
        return builder.getOrCreate()
    # The JVM has the settings of spark-submit and of spark-defaults.conf.
    SparkContext._ensure_initialized()
    given = SparkConf()
    if given.get(UNIX_SOCKETS) is None and _can_use_unix_sockets(given):
        builder = builder.config(UNIX_SOCKETS, "true")
    if given.get(LOG_LEVEL) is None and has_sparks_log4j(SparkContext._jvm):
        builder = builder.config(LOG_LEVEL, "WARN")
    return builder.getOrCreate()


def _can_use_unix_sockets(given: SparkConf) -> bool:
    """Return whether the paths of sockets are short enough, which Spark does not check."""
    if (given.get("spark.master") or "").startswith("yarn"):
        # Temporary directories of YARN's containers have long paths.
        return False
    jvm: Any = SparkContext._jvm
    directory = given.get(SOCKET_DIRECTORY) or jvm.java.lang.System.getProperty("java.io.tmpdir")
    return len(os.fsencode(directory)) <= SOCKET_DIRECTORY_BYTES_MAX


def _settings(given: argparse.Namespace, arguments: Arguments) -> Iterator[tuple[str, str, str]]:
    for name, (key, _) in arguments.items():
        if (value := getattr(given, name)) is not None:
            yield name, key, value
    for setting in given.set:
        key, _, value = setting.partition("=")
        yield f"--set {key}", key, value


def run_once(
    start_query: Callable[[], StreamingQuery], await_end: Callable[[StreamingQuery], object]
) -> None:
    """Run a query until it ends."""
    await_end(start_query())


def run_job(spark: SparkSession, options: JobOptions, write: Write, run: Run = run_once) -> None:
    """Run the query until it completes, fails, or receives SIGTERM.

    Args:
        write: Returns the writer of the rows.
        run: Starts the query and waits for its end; may start it again.

    Raises:
        OptionsError: The output belongs to another query, Spark lacks the sink, or the session is a
            Spark Connect session.
        StreamingQueryException: The query failed.
        SystemExit: A signal ended the query, which may have left rows unread.
    """
    end = stop_on_sigterm(spark, timeout_s=options.stop_timeout_s)
    # The listener stays open for the life of the process, because it reports the query's end.
    listen(spark)
    load = Load.of(options.source)
    is_cold = HAS_ADMISSION_CONTROL and not load.emits_ranges

    def start_query() -> StreamingQuery:
        nonlocal is_cold
        query = start_job(spark, options, lambda rows: apart(end, lambda: write(rows)))
        logger.info("query %s is running; SIGTERM or Ctrl-C stops it after its batch", query.id)
        if is_cold:
            # Not before: the process of the source has only 10 s to connect.
            is_cold = False
            start_workers(spark, load.range_settings)
        return query

    run(start_query, end.await_termination)
    if end.signal_number is not None:
        # As a shell, and the JVM of spark-submit, report a signal.
        sys.exit(128 + end.signal_number)


def apart(end: CleanEnd, act: Callable[[], T]) -> T:
    """Return the result of a call that may block, such as a first look at a store.

    It runs in another thread: Python handles signals only in this one.

    Raises:
        SystemExit: A signal came.
    """
    result: Future[T] = Future()

    def run_act() -> None:
        try:
            result.set_result(act())
        except BaseException as error:
            result.set_exception(error)

    InheritableThread(target=run_act, name="first-look", daemon=True).start()
    while not wait([result], LOOK_S).done:
        if end.has_begun:
            end.await_done()
            number = end.signal_number or signal.SIGTERM
            logger.info("ended by %s before the query had started", signal.Signals(number).name)
            sys.exit(128 + number)
    return result.result()


def start_workers(spark: SparkSession, settings: RangeSettings) -> threading.Thread:
    """Start Python workers in the background, with the reader imported, while the member joins.

    Call it when `spark_groups.start` has returned: earlier they would compete with the process of
    the source. Otherwise they start when the first batch has been planned. Spark gives them to the
    query only if the source is registered, on 4.2 and later, and if they have run Arrow batches: it
    keeps workers by their environment, which differs for a source that it has found itself, and for
    RDDs.
    """

    def load(batches: Iterator[Any]) -> Iterator[Any]:
        load_reader(settings)
        yield from batches

    def run_tasks() -> None:
        tasks = spark.sparkContext.defaultParallelism
        try:
            spark.sparkContext.setJobDescription("Start Python workers for the first batch")
            rows = spark.range(0, tasks, numPartitions=tasks)
            map_in_arrow(rows, load, "id long").collect()
        except Exception as error:
            # The first batch starts them, and reports why they cannot start.
            logger.debug("Python workers could not be started early: %s", error)

    started = InheritableThread(target=run_tasks, name="start-workers", daemon=True)
    started.start()
    return started


def start_job(spark: SparkSession, options: JobOptions, write: Write) -> StreamingQuery:
    """Start the query.

    Raises:
        OptionsError: The output belongs to another query, or Spark lacks the sink.
    """
    register(spark)
    application = options.application_name or spark.sparkContext.applicationId
    rows = spark.readStream.format("kafka-group").options(**_source_of(options)).load()
    if UNDECODABLE in rows.columns:
        # The listener adds the number to the metrics.
        rows = rows.observe(UNDECODABLE, count(UNDECODABLE).alias("records"))
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
    if not isinstance(options, ConsumeOptions) or is_fenced:
        return start(writer)
    if options.sink_format in {"console", "function"}:
        return start(writer)
    output = f"{options.sink_path.rstrip('/')}/{application}"
    if options.sink_format != "parquet":
        # A Delta table identifies its writers by query ID.
        return start_into(writer, options.sink_format, output)
    guard = OutputGuard(spark, output=output, checkpoint=checkpoint)
    guard.claim()
    query = start_into(writer, options.sink_format, output)
    guard.confirm(str(query.id))
    return query


def _source_of(options: JobOptions) -> dict[str, str]:
    """Return the options of the source; `kafka.client.id` defaults to `application.name`."""
    source = dict(options.source)
    if options.application_name and CLIENT_ID not in map(str.lower, source):
        source[CLIENT_ID] = options.application_name
    return source


def written(rows: DataFrame, options: ConsumeOptions) -> DataStreamWriter:
    """Return a writer into the configured sink, without a path.

    Raises:
        OptionsError: The options of a table are wrong, or its package is missing.
        TableError: The table cannot be written.
    """
    if options.is_fenced:
        table_writer = _table_writer(options)
        table_writer.check(rows)
        return rows.writeStream.foreachBatch(table_writer)
    writer = rows.writeStream.format(options.sink_format).outputMode("append")
    return writer.options(**options.sink_options)


def _table_writer(options: ConsumeOptions) -> TableWriter:
    """Return what writes the batches of a job into its table."""
    try:
        allowed = Allowed.by(os.environ)
        given = {
            name: resolved(str(value).lower() if isinstance(value, bool) else str(value), allowed)
            for name, value in options.table_options.items()
        }
    except ValueError as error:
        raise OptionsError(f"sink.options: {error}") from None
    transform = None
    if options.select_expr and not options.expand:
        transform = lambda rows: rows.selectExpr(*options.select_expr)  # noqa: E731
    route = partial(_table, options, given)
    return write_table(
        route if options.is_routed else route(TOPIC),
        transform,
        on_error=options.on_error(),
        expand=options.expand,
        envelope=options.envelope,
    )


def _table(options: ConsumeOptions, given: Mapping[str, str], topic: str) -> FencedTable:
    """Return the table of a topic, or the only one, whose name does not depend on the topic."""
    names = ("table", "identifier", LETTER_TABLE)
    properties = {
        name: value.replace(TOPIC, topic) if name in names else value
        for name, value in given.items()
    }
    more = options.table_arguments
    # Each needs a package of its own.
    if options.sink_format == "delta":
        from spark_groups.spark.tables.delta import delta_table  # noqa: PLC0415

        path = options.sink_path.replace(TOPIC, topic)
        return delta_table(path, properties, **more)
    if options.sink_format == "iceberg":
        from spark_groups.spark.tables.iceberg import iceberg_table  # noqa: PLC0415

        identifier, catalog = properties.pop("identifier"), properties.pop("catalog", None)
        return iceberg_table(identifier, catalog, properties, **more)
    from spark_groups.spark.tables.postgres import postgres_table  # noqa: PLC0415

    return postgres_table(
        properties["dsn"],
        properties["table"],
        dead_letters=properties.get(LETTER_TABLE),
        **more,
    )


def start_into(writer: DataStreamWriter, sink_format: str, output: str) -> StreamingQuery:
    """Start a query that writes into a directory; raise an OptionsError if Spark lacks the sink."""
    try:
        return start(writer.option("path", output))
    except (PySparkException, Py4JJavaError) as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise OptionsError(
            f"sink.format: this Spark has no {sink_format} sink: add its package, for Delta Lake"
            " --packages io.delta:delta-spark_2.13 in the version for this Spark"
        ) from error


class OutputGuard:
    """Reserves a Parquet directory for the query of one checkpoint.

    Spark's file sink logs the batches that it has written in `_spark_metadata` and skips a batch
    number that is in the log. A query with another checkpoint starts at batch 0 again, so Spark
    would skip its batches silently. The file `_written_by`, which Parquet readers ignore, holds the
    query ID from the checkpoint of the directory's writer.
    """

    def __init__(self, spark: SparkSession, *, output: str, checkpoint: str) -> None:
        context = spark.sparkContext
        self._files = HadoopFiles(context._jvm, context._jsc.hadoopConfiguration())
        self._output = self._files.qualified(output)
        self._checkpoint = self._files.qualified(checkpoint)
        self._note = f"{self._output}/{WRITTEN_BY}"

    def claim(self) -> None:
        """Reserve the directory before the query starts.

        Raises:
            OptionsError: The query of another checkpoint writes it, or may have written it.
        """
        if not self._files.exists(self._note):
            if self._files.exists(f"{self._output}/{SINK_LOG}"):
                raise self._refusal(f"a query that left no {WRITTEN_BY} file")
            if self._files.create(self._note, self._note_text(None), overwrite=False):
                return
        note = self._read_note()
        if note["query_id"] is None:
            # The query never started, so only the path of its checkpoint is known.
            if note["checkpoint"] != self._checkpoint:
                raise self._refusal(f"the query of checkpoint {note['checkpoint']}")
        elif note["query_id"] != self._query_id():
            raise self._refusal(
                f"query {note['query_id']}, whose checkpoint was {note['checkpoint']}"
            )

    def confirm(self, query_id: str) -> None:
        """Record the query ID, which stays the same for the life of the checkpoint."""
        if self._read_note()["query_id"] != query_id:
            self._files.create(self._note, self._note_text(query_id), overwrite=True)

    def _query_id(self) -> str | None:
        metadata = f"{self._checkpoint}/metadata"
        if not self._files.exists(metadata):
            return None
        return str(json.loads(self._files.read(metadata))["id"])

    def _note_text(self, query_id: str | None) -> str:
        return json.dumps({"query_id": query_id, "checkpoint": self._checkpoint}) + "\n"

    def _read_note(self) -> dict[str, str | None]:
        try:
            is_there = self._files.exists(self._note)
            note = json.loads(self._files.read(self._note) if is_there else "")
            return {"query_id": note["query_id"], "checkpoint": note["checkpoint"]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._refusal(f"an unknown query: {self._note} cannot be read") from error

    def _refusal(self, writer: str) -> OptionsError:
        return OptionsError(
            f"{self._output} was written by {writer}, not by the query of checkpoint"
            f" {self._checkpoint}; Spark would silently skip this query's batches there and lose"
            " their rows. Change application.name or sink.path, or remove the output and the"
            " checkpoint together to start over"
        )
