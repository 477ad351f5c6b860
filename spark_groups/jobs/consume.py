"""Reads topics as a member of a consumer group, and writes files, a table, or to the console.

With sink.format = "function" it calls a function with each record, on executors; the strategy in
sink.options decides about records that the function cannot process.

    spark-submit --master 'local[2]' jobs/consume.py --config conf/consume.toml --name flights-1
    python -m spark_groups.jobs.consume --config conf/consume.toml --name flights-1

The command line can override every key of the file. SIGTERM or Ctrl-C ends the job cleanly: the
running batch ends, its offsets are committed, and the member leaves the group.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_groups.spark.jobs.job_options import ConsumeOptions
from spark_groups.spark.jobs.run import OUTPUT, main, run_job, written
from spark_groups.spark.processing.by_value import sent_by_value
from spark_groups.spark.processing.process import process_records


def run(spark: SparkSession, options: ConsumeOptions) -> None:
    """Write the rows unchanged, or call the function with each record."""
    if options.sink_format == "function":
        handle = sent_by_value(str(options.sink_options["function"]), "sink.options.function")
        processing = process_records(handle, options.strategy())
        run_job(
            spark,
            options,
            lambda rows: rows.writeStream.foreachBatch(processing),
            processing.run,
        )
    else:
        run_job(spark, options, lambda rows: written(rows, options))


if __name__ == "__main__":
    main(__doc__, ConsumeOptions, run, OUTPUT)
