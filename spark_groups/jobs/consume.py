"""Reads topics as a member of a consumer group, and writes files, a table, or to the console.

    spark-submit --master 'local[2]' jobs/consume.py --config conf/consume.toml --name flights-1
    python -m spark_groups.jobs.consume --config conf/consume.toml --name flights-1

The command line can override every key of the file. SIGTERM or Ctrl-C ends the job cleanly: the
running batch ends, its offsets are committed, and the member leaves the group.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_groups.spark.jobs.job_options import ConsumeOptions
from spark_groups.spark.jobs.run import OUTPUT, main, run_job, written


def run(spark: SparkSession, options: ConsumeOptions) -> None:
    """Write the rows unchanged."""
    run_job(spark, options, lambda rows: written(rows, options))


if __name__ == "__main__":
    main(__doc__, ConsumeOptions, run, OUTPUT)
