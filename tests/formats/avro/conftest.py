"""The compiled code is made before tests import it, where it cannot be older than its sources."""

from spark_groups.spark.reading.compiled import AVRO, prepare

prepare(AVRO)
