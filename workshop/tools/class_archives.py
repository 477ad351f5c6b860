"""Store the classes of the embedded Kafka and of Spark, for quick starts: make test does so once.

A Spark application reads a topic in a group, aggregates and writes: it loads the classes that most
tests need. Decoders are compiled as well, for which all workers of pytest would wait together.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.properties import STARTS_FAST
from spark_groups.errors import EmbeddedKafkaError
from spark_groups.spark.reading.compiled import AVRO, RECORDS, NotCompiledError, prepare
from workshop.parts.brokers import create_topic
from workshop.parts.class_archive import archive_kafka, flags_to_write, keep
from workshop.parts.spark_classes import FLAGS_VARIABLE, spark_archive

_TIMEOUT_S = 600
_APPLICATION = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, expr

servers, directory = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
options = {
    "kafka.bootstrap.servers": servers,
    "kafka.group.id": "classes",
    "subscribe": "classes",
    "startingOffsets": "earliest",
}
rows = spark.readStream.format("kafka-group").options(**options).load()
values = rows.select(col("key"), col("value").cast("string"), "partition", "timestamp")


def run(writer, name):
    writer = writer.option("checkpointLocation", f"{directory}/{name}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def aggregate(batch, batch_id):
    batch.persist()
    batch.groupBy("timestamp").agg(count("*"), expr("max(value)")).collect()
    batch.toPandas()
    batch.unpersist()


run(values.writeStream.format("parquet").option("path", f"{directory}/rows"), "parquet")
spark.read.parquet(f"{directory}/rows").orderBy("partition").collect()
run(spark.readStream.format("rate").load().writeStream.foreachBatch(aggregate), "batches")
spark.createDataFrame([(1, "a")], "number int, letter string").mapInArrow(
    lambda batches: batches, "number int, letter string"
).collect()
spark.stop()
"""


def main() -> None:
    """Make the archives that are missing; without them tests only take longer."""
    try:
        _make()
        for decoder in (RECORDS, AVRO):
            prepare(decoder)
    except (EmbeddedKafkaError, NotCompiledError, subprocess.TimeoutExpired) as error:
        logging.warning("tests will take longer, without archives of classes: %s", error)


def _make() -> None:
    archive_kafka()
    archive = spark_archive()
    if archive.exists():
        return
    flags = " ".join((*STARTS_FAST, *flags_to_write(archive)))
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as directory:
        create_topic(kafka.bootstrap_servers, "classes", 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(100):
            producer.produce("classes", key=str(number), value=f"value {number}")
        producer.flush()
        Path(directory, "application.py").write_text(_APPLICATION, "utf-8")
        # Its JVM holds the output open until it has written the archive.
        done = subprocess.run(
            [sys.executable, f"{directory}/application.py", kafka.bootstrap_servers, directory],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, FLAGS_VARIABLE: flags},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            cwd=directory,
            check=False,
        )
        # A JVM that crashes leaves a report there.
        is_whole = done.returncode == 0 and not list(Path(directory).glob("hs_err*"))
    if not keep(archive, is_whole=is_whole):
        raise EmbeddedKafkaError(f"Spark wrote no archive:\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()
