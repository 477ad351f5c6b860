"""A Spark application, with Spark's own Kafka connector, that reads batches of a group with it.

    python -m tests.spark.source.batch_rows_application DIRECTORY

DIRECTORY/given.json is the input; observations are written to DIRECTORY/seen.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from tests.runtime.members import committed
from tests.spark.queries import READ_S
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, produce
from workshop.parts.waiting import wait_until

CONSUMERS = "kafka.consumer:type=app-info,id=*"
ORDER = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Application:
    """What a scenario works with.

    Args:
        spark: A session with the connector.
        directory: Where things are written.
        servers: A listener where everything is allowed.
        topic: The topic to read.
        options: Those of the stream.
    """

    spark: SparkSession
    directory: Path
    servers: str
    topic: str
    options: dict[str, str]

    def stream(self, **options: str) -> DataFrame:
        """Load the stream."""
        given = {**self.options, **options}
        return self.spark.readStream.format("kafka-group").options(**given).load()

    def run(
        self, take: Callable[[DataFrame, int], object], checkpoint: str, stream: DataFrame
    ) -> str:
        """Read what there is; return why it failed, or nothing."""
        query = spark_groups.start(
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        return ""

    def consumers(self) -> list[str]:
        """Return the JVM's consumers by their client ids, which are never used again."""
        jvm: Any = self.spark.sparkContext._jvm
        new_array: Any = self.spark.sparkContext._gateway.new_array
        class_of = jvm.java.lang.Class.forName
        # The server's own class cannot be seen from outside its module, only its interface.
        types, arguments = new_array(jvm.java.lang.Class, 2), new_array(jvm.java.lang.Object, 2)
        types[0], types[1] = (
            class_of("javax.management.ObjectName"),
            class_of("javax.management.QueryExp"),
        )
        arguments[0] = jvm.javax.management.ObjectName(CONSUMERS)
        query = class_of("javax.management.MBeanServer").getMethod("queryNames", types)
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        found = query.invoke(server, arguments)
        return sorted(str(each.getKeyProperty("id")) for each in found)

    def taking(self, seen: list[dict[str, Any]], name: str) -> Callable[[DataFrame, int], None]:
        """Return a function that keeps the rows of batches, and notes what it saw."""

        def take(rows: DataFrame, batch_id: int) -> None:
            rows.write.parquet(str(self.directory / name / f"batch={batch_id}"), mode="overwrite")
            count, tasks = rows.count(), rows.rdd.getNumPartitions()
            consumers = self.consumers()
            seen.append({"id": batch_id, "rows": count, "tasks": tasks, "consumers": consumers})

        return take

    def written(self, name: str) -> DataFrame:
        """Return the kept rows."""
        return self.spark.read.parquet(str(self.directory / name)).drop("batch").orderBy(*ORDER)


def reads(given: Application) -> dict[str, Any]:
    """Read in several batches; then run the last one again, as after a crash."""
    seen: list[dict[str, Any]] = []
    read = spark_groups.foreach_batch_rows(given.taking(seen, "rows"))
    failure = given.run(read, "checkpoint", given.stream())
    if failure:
        return {"failure": failure}
    batches = seen[:]
    seen.clear()
    commits = given.directory / "checkpoint" / "commits"
    last = max((each for each in commits.glob("[0-9]*")), key=lambda each: int(each.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()
    failure = given.run(read, "checkpoint", given.stream())
    _compare(given)
    return {"failure": failure, "batches": batches, "replayed": seen}


def _compare(given: Application) -> None:
    """Compare with Spark's own source, and with the stream of records."""
    security = {name: value for name, value in given.options.items() if "group.id" not in name}
    whole = (
        given.spark.read.format("kafka")
        .options(**{**security, "subscribe": given.topic, "includeHeaders": "true"})
        .option("startingOffsets", "earliest")
        .load()
    )
    assert_df_equality(given.written("rows"), whole.orderBy(*ORDER), ignore_nullable=True)

    def keep(rows: DataFrame, batch_id: int) -> None:
        rows.write.parquet(str(given.directory / "records" / f"batch={batch_id}"), mode="overwrite")

    stream = given.stream(emit="records", **{"kafka.group.id": f"{given.topic}-records"})
    assert given.run(keep, "records-checkpoint", stream) == ""
    assert_df_equality(given.written("rows"), given.written("records"), ignore_nullable=True)


def proves(given: Application) -> dict[str, Any]:
    """Read one batch whose next trigger does not come, until its offsets are committed."""
    group_id = f"{given.topic}-proves"
    query = (
        given.stream(**{"kafka.group.id": group_id})
        .writeStream.foreachBatch(spark_groups.foreach_batch_rows(lambda *_: None))
        .option("checkpointLocation", str(given.directory / "proves"))
        .trigger(processingTime="1 hour")
        .start()
    )

    def read() -> int:
        return sum(committed(given.servers, group_id).values())

    wait_until(read, READ_S, "the commit")
    query.stop()
    return {"committed": read()}


def secured(given: Application) -> dict[str, Any]:
    """Read everything in one batch."""
    seen: list[dict[str, Any]] = []
    read = spark_groups.foreach_batch_rows(given.taking(seen, "rows"))
    failure = given.run(read, "checkpoint", given.stream())
    return {"failure": failure, "batches": seen}


def refuses(given: Application) -> dict[str, Any]:
    """Write streams that cannot be read so."""
    read = spark_groups.foreach_batch_rows(lambda *_: None)
    filtered = given.stream().where("partition = 0")
    return {
        "records": given.run(read, "records-refused", given.stream(emit="records")),
        "filtered": given.run(read, "filtered-refused", filtered),
    }


def recreated(given: Application) -> dict[str, Any]:
    """Replace the topic between the plan of a batch and its reading, and during the reading."""
    counts: list[int] = []

    def count(rows: DataFrame, _: int) -> None:
        counts.append(rows.count())

    def recreate(*_: object) -> None:
        client = admin(given.servers)
        (deleted,) = client.delete_topics([given.topic]).values()
        deleted.result(ANSWER_S)
        time.sleep(1.0)
        create_topic(given.servers, given.topic, 2)
        produce(given.servers, given.topic, [Row(b"new", partition=i % 2) for i in range(100)])

    read = spark_groups.foreach_batch_rows(count)
    read_and_recreate = spark_groups.foreach_batch_rows(recreate)

    def recreate_and_read(batch: DataFrame, batch_id: int) -> None:
        # Once: the next batch reads the new records.
        if batch_id == 0:
            recreate()
        read(batch, batch_id)

    def with_group(name: str, **options: str) -> DataFrame:
        return given.stream(**options, **{"kafka.group.id": f"{given.topic}-{name}"})

    return {
        "before": given.run(recreate_and_read, "before", with_group("before")),
        "meanwhile": given.run(read_and_recreate, "meanwhile", with_group("meanwhile")),
        "accepted": given.run(
            recreate_and_read, "accepted", with_group("accepted", failOnDataLoss="false")
        ),
        "counts": counts,
    }


SCENARIOS = {each.__name__: each for each in (reads, proves, secured, refuses, recreated)}


def main(directory: Path) -> None:
    """Run the given scenarios."""
    given = json.loads((directory / "given.json").read_text())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", given["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seen = {}
    for name, topic in given["scenarios"].items():
        options = {**given["options"], "subscribe": topic, "emit": "ranges"}
        application = Application(spark, directory, given["servers"], topic, options)
        seen[name] = SCENARIOS[name](application)
    (directory / "seen.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
