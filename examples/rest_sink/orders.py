"""Sends the orders of a topic to the service, each exactly once; ends when all are there."""

from __future__ import annotations

from pyspark.sql import SparkSession
from store import Service

import spark_groups


def main() -> None:
    """Run the query until it has sent the orders that exist at its start."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    service = Service()
    table = spark_groups.own_table("the order service", service.read, service.write)
    (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("kafka.group.id", "order-senders")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
        .writeStream.foreachBatch(spark_groups.write_table(table))
        .option("checkpointLocation", "checkpoints/orders")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
