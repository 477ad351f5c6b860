"""A job: topics of a group to wherever it writes them, until it is told to end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.spark.control.listener import listen
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.jobs.job_options import AVAILABLE_NOW, JobOptions
from spark_groups.spark.jobs.sink import start_into
from spark_groups.spark.source.registration import register

logger = logging.getLogger(__name__)

Write = Callable[[DataFrame], DataStreamWriter]
"""Says how the rows of a job are written."""


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
    end = stop_on_sigterm(spark, timeout_s=options.query.stop_timeout_s)
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
    application = options.application.name or spark.sparkContext.applicationId
    rows = spark.readStream.format("kafka-group").options(**dict(options.source)).load()
    if options.query.select_expr:
        rows = rows.selectExpr(*options.query.select_expr)
    checkpoint = f"{options.query.checkpoint_location.rstrip('/')}/{application}"
    writer = _triggered(write(rows), options).queryName(application)
    writer = writer.option("checkpointLocation", checkpoint)
    if options.files is None:
        return writer.start()
    return start_into(spark, writer, options.files, application, checkpoint)


def _triggered(writer: DataStreamWriter, options: JobOptions) -> DataStreamWriter:
    if options.query.trigger_s == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    interval_ms = round(float(options.query.trigger_s) * 1000)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds")
