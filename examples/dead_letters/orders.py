"""Books the orders of a topic into orders.db; an order that it cannot read becomes a dead letter.

SIGTERM ends the application after its batch.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from pyspark.sql import SparkSession

import spark_groups

DATABASE = "orders.db"
LOCK_S = 60.0
"""How long a task waits for the other one, which also writes to the database."""


def book(record: spark_groups.Record) -> None:
    """Write one order; called on executors. Booking an order again changes nothing."""
    # Each error has one text, without the value: the replay counts letters by their errors.
    try:
        order = json.loads(record.value or b"")
    except ValueError:
        raise spark_groups.UnprocessableError("the order is no JSON") from None
    try:
        cents = round(float(order["price"]) * 100)
    except ValueError:
        raise spark_groups.UnprocessableError("the price is no number") from None
    with closing(sqlite3.connect(DATABASE, timeout=LOCK_S)) as database, database:
        database.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", [order["id"], cents])


def main() -> None:
    """Run the query until SIGTERM."""
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, cents)")
    spark = SparkSession.builder.appName("orders").getOrCreate()
    # An order that only waits for the database is no dead letter.
    strategy = spark_groups.SkipOrDeadLetter(record_deadline_s=2 * LOCK_S)
    query = spark_groups.start(
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("kafka.group.id", "billing")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "500")
        .load()
        .writeStream.foreachBatch(spark_groups.process_records(book, strategy))
        .option("checkpointLocation", "checkpoints/orders")
    )
    spark_groups.await_end(query)


if __name__ == "__main__":
    main()
