"""Shows all dead letters with their errors, as a batch read of no group; it commits nothing."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, map_from_entries

spark = SparkSession.builder.appName("look").getOrCreate()
letters = (
    spark.read.format("kafka-group")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "orders.billing.dead-letter")
    .option("includeHeaders", "true")
    .load()
    .withColumn("header", map_from_entries("headers"))
)
letters.select(
    col("header")["spark-groups.error"].cast("string").alias("error"),
    col("header")["spark-groups.original.partition"].cast("string").alias("partition"),
    col("header")["spark-groups.original.offset"].cast("string").alias("offset"),
    col("value").cast("string"),
).orderBy("error", "partition", col("offset").cast("int")).show(100, truncate=False)
