"""Counts the records of each time window, as a member of a consumer group.

    spark-submit --master 'local[2]' jobs/count_by_window.py --config conf/count_by_window.toml
    python -m spark_groups.jobs.count_by_window --config conf/count_by_window.toml

A window is written once, after the watermark has passed its end. Until then it is state, which
Spark keeps per application, not per partition: if partitions move to another application, each
counts only the records that it has read. Run the job alone in its group, or as a static member
(kafka.group.instance.id); partitionMoveWithState sets the action if partitions move. SIGTERM or
Ctrl-C ends the job cleanly, after its batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, window
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.spark.jobs.job_options import CountOptions
from spark_groups.spark.jobs.run import OUTPUT, main, run_job, written


def run(spark: SparkSession, options: CountOptions) -> None:
    """Write the counts of closed windows."""

    def counted(rows: DataFrame) -> DataStreamWriter:
        windows = window("timestamp", options.length, options.slide)
        groups = rows.withWatermark("timestamp", options.watermark).groupBy(
            windows, *map(expr, options.group_by)
        )
        counts = groups.count().select("window.start", "window.end", "*").drop("window")
        return written(counts, options)

    run_job(spark, options, counted)


if __name__ == "__main__":
    main(__doc__, CountOptions, run, OUTPUT)
