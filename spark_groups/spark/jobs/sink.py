"""Sinks of Spark's own: files in a directory for each application, or the console."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.hadoop_files import HadoopFiles
from spark_groups.spark.jobs.job_options import SinkSection
from spark_groups.spark.jobs.output_guard import OutputGuard

_NOT_FOUND: Final = "DATA_SOURCE_NOT_FOUND"


def written(rows: DataFrame, sink: SinkSection) -> DataStreamWriter:
    """Return a writer of rows into a sink.

    Args:
        rows: Streaming rows.
        sink: Which.
    """
    writer = rows.writeStream.format(sink.format).outputMode("append")
    return writer.options(**sink.options)


def start_into(
    spark: SparkSession,
    writer: DataStreamWriter,
    sink: SinkSection,
    application: str,
    checkpoint: str,
) -> StreamingQuery:
    """Start a query that writes files into the directory of its application.

    Args:
        spark: The session.
        writer: The writer, without a path.
        sink: Which files, and where.
        application: Whose directory it is.
        checkpoint: The query's checkpoint.

    Raises:
        OptionsError: The directory is another query's, or Spark has no such sink.
    """
    output = f"{sink.path.rstrip('/')}/{application}"
    if sink.format != "parquet":
        # A table of Delta knows its writers by their queries' ids.
        return _start(writer, sink, output)
    guard = OutputGuard(HadoopFiles(spark), output=output, checkpoint=checkpoint)
    guard.claim()
    query = _start(writer, sink, output)
    guard.confirm(str(query.id))
    return query


def _start(writer: DataStreamWriter, sink: SinkSection, output: str) -> StreamingQuery:
    try:
        return writer.start(output)
    except (PySparkException, Py4JJavaError) as error:
        if _NOT_FOUND not in str(error):
            raise
        raise OptionsError(
            f"sink.format: Spark has no {sink.format} here: start it with its package, for Delta"
            " Lake --packages io.delta:delta-spark_2.13 of the version that fits this Spark"
        ) from error
