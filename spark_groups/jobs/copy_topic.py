"""Copies topics to another topic, in the same cluster or another one.

    spark-submit --master 'local[2]' jobs/copy_topic.py --config conf/copy_topic.toml
    python -m spark_groups.jobs.copy_topic --config conf/copy_topic.toml

Key, value and headers are copied; the partition stays the same, or the key decides. Delivery is at
least once: records are written before their offsets are committed, so a crash may repeat a batch
but loses no record. Copies get new timestamps. The command line can override every key of the
file. SIGTERM or Ctrl-C ends the job cleanly, after its batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import CopyOptions, connected
from spark_groups.spark.jobs.run import main, run_job
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record_writer import send_records

TARGET = {"--target": ("target.topic", "The topic to write.")}


def run(spark: SparkSession, options: CopyOptions) -> None:
    """Write each batch to the target before it ends."""
    topic, keeps_partition = options.topic, options.partition == "same"
    connection = connected(options.cluster or options.source)
    if not options.cluster and SourceOptions.of(options.source).subscription.matches(topic):
        raise OptionsError(f"target.topic: the job also reads {topic}, so it would never end")

    def copied(record: Record) -> Letter:
        partition = record.partition if keeps_partition else None
        return Letter(topic, record.key, record.value, record.headers, partition)

    def copy(batch: DataFrame, _: int) -> None:
        send_records(batch, copied, connection)

    run_job(spark, options, lambda rows: rows.writeStream.foreachBatch(copy))


if __name__ == "__main__":
    main(__doc__, CopyOptions, run, TARGET)
