"""A client of Spark Connect with a server of its own: supported and refused calls.

    python -m tests.spark.connect_application SERVERS GROUP TOPIC DIRECTORY

Writes what it saw into DIRECTORY/seen.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
from pyspark.sql import SparkSession

import spark_groups
from spark_groups import (
    SkipOrDeadLetter,
    delta_table,
    foreach_batch_rows,
    process_records,
    write_table,
)
from spark_groups.spark.control.shutdown import stop_on_sigterm
from tests.spark.queries import READ_S
from workshop.parts.brokers import produce
from workshop.parts.waiting import wait_until


def refusal(act: Callable[[], Any]) -> str:
    """Return what an act is refused with, and by whom."""
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def seen_of_tables(
    directory: Path,
    stream: Callable[[str, str], Any],
    write: Callable[[Any, str], Any],
    run: Callable[[Any], None],
) -> dict[str, Any]:
    """Return what writes of tables are refused with, and what one of them has written."""
    seen: dict[str, Any] = {}
    written = directory / "table"
    for name, emit, table, condition in (
        ("written", "ranges", written, "true"),
        ("filtered", "ranges", directory / "filtered", "partition = 0"),
        ("records", "records", directory / "records", "true"),
        ("constrained", "ranges", directory / "constrained", "true"),
    ):
        rows = stream(emit, name).where(condition)
        writer = write(rows, f"{name}-checkpoint").foreachBatch(write_table(delta_table(table)))
        seen[name] = refusal(partial(run, writer))
    seen["rows of the table"] = deltalake.DeltaTable(written).to_pyarrow_dataset().count_rows()
    checked = stream("ranges", "checked")
    seen["check"] = refusal(lambda: write_table(delta_table(written)).check(checked))
    return seen


def main(servers: str, group_id: str, topic: str, directory: Path) -> None:
    """Run everything once."""
    spark = SparkSession.builder.remote("local[2]").appName("connect").getOrCreate()
    where = {"kafka.bootstrap.servers": servers, "kafka.group.id": group_id}

    def stream(**options: str) -> Any:
        chosen = {"subscribe": topic, "startingOffsets": "earliest"}
        asked = where | chosen | options
        return spark.readStream.format("kafka-group").options(**asked).load()

    def backlog() -> int:
        return spark.read.format("kafka-group").options(**where).load().count()

    def state() -> list[dict[str, Any]]:
        rows = spark.read.format("kafka-group-state").options(**where).load()
        columns = ("partition", "group_state", "client_id", "committed_offset", "lag")
        return [row.asDict() for row in rows.select(*columns).orderBy("partition").collect()]

    def run(writer: Any) -> None:
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(READ_S), "AvailableNow did not end"
        if query.exception() is not None:
            raise query.exception()

    def write(rows: Any, name: str) -> Any:
        checkpoint = str(directory / name / "checkpoint")
        return rows.writeStream.option("checkpointLocation", checkpoint)

    seen: dict[str, Any] = {"session": type(spark).__module__}
    run(write(stream(), "all").format("parquet").option("path", str(directory / "rows")))
    seen["rows"] = spark.read.parquet(str(directory / "rows")).count()
    seen["left"] = state()
    produce(servers, topic, [b"unread"] * 3)
    seen["backlog"] = backlog()
    spark_groups.register(spark)
    seen["backlog of the registered source"] = backlog()
    query = write(stream(), "stays").format("noop").start()

    def groups() -> list[str]:
        assert query.isActive, query.exception()
        return [each["group"] for each in spark_groups.figures(query)]

    seen["figures"] = wait_until(groups, READ_S, "figures")
    seen["owners"] = [row["client_id"] for row in state()]
    query.stop()
    wait_until(lambda: not any(row["client_id"] for row in state()), READ_S, "an empty group")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a"'
    sent = f'{login} password="${{env:HOME}}";'
    secured = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    seen["reference"] = refusal(
        lambda: stream(**secured, **{"kafka.sasl.jaas.config": sent}).schema
    )
    seen["listen"] = refusal(lambda: spark_groups.listen(spark))
    seen["stop_on_sigterm"] = refusal(lambda: stop_on_sigterm(spark))
    for name, options, process in (
        ("foreach_batch_rows", {"emit": "ranges"}, foreach_batch_rows(lambda rows, number: None)),
        ("process_records", {}, process_records(print, SkipOrDeadLetter())),
    ):
        rows = stream(**{"kafka.group.id": f"{group_id}-{name}"}, **options)
        batches = write(rows, name).foreachBatch(process)
        seen[name] = refusal(partial(run, batches))
    seen |= seen_of_tables(
        directory,
        lambda emit, group: stream(emit=emit, **{"kafka.group.id": f"{group_id}-{group}"}),
        write,
        run,
    )
    (directory / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
