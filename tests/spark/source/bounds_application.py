"""A Spark application that reads a topic with Spark's own Kafka source and with this one.

    python -m tests.spark.source.bounds_application DIRECTORY

DIRECTORY/given.json is the input; what each source read is written to DIRECTORY/seen.json.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_groups

SOURCES = ("kafka", "kafka-group")


def rows_of(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows.collect())


def batch(spark: SparkSession, source: str, options: dict[str, str]) -> list[tuple[int, int]]:
    """Read a batch; neither source is given a group."""
    return rows_of(spark.read.format(source).options(**options).load())


def stream(
    spark: SparkSession, source: str, options: dict[str, str], directory: Path
) -> list[tuple[int, int]]:
    """Read a stream to the end of its logs; this source joins a group of its own."""
    name = f"seen_{uuid.uuid4().hex[:8]}"
    group = {"kafka.group.id": name} if source == "kafka-group" else {}
    query = spark_groups.start(
        spark.readStream.format(source)
        .options(**options, **group)
        .load()
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(directory / name))
        .trigger(availableNow=True)
    )
    query.awaitTermination()
    return rows_of(spark.table(name))


def seen_by(
    spark: SparkSession, source: str, kind: str, options: dict[str, str], directory: Path
) -> dict[str, object]:
    """Return the rows of one source, or its error."""
    try:
        if kind == "batch":
            return {"rows": batch(spark, source, options)}
        return {"rows": stream(spark, source, options, directory)}
    except PySparkException as error:
        return {"error": str(error)}
    except Exception as error:
        # An error of the JVM that PySpark does not know.
        return {"error": str(getattr(error, "java_exception", error))}


def main(directory: Path) -> None:
    """Read every given case with both sources."""
    given = json.loads((directory / "given.json").read_text())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", given["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seen = {}
    for kind in ("batch", "stream"):
        for name, options in given[kind].items():
            seen[f"{kind}: {name}"] = {
                source: seen_by(spark, source, kind, given["options"] | options, directory)
                for source in SOURCES
            }
            print(kind, name, seen[f"{kind}: {name}"], flush=True)
    (directory / "seen.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
