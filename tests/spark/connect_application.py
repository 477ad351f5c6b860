"""A client of Spark Connect with a server of its own: supported and refused calls.

    python -m tests.spark.connect_application SERVERS GROUP TOPIC DIRECTORY

Writes what it saw into DIRECTORY/seen.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
from pyspark.sql import SparkSession

import spark_groups
from spark_groups import (
    AtLast,
    PartitionsMoved,
    Relinquish,
    SkipOrDeadLetter,
    delta_table,
    foreach_batch_rows,
    process_records,
    write_table,
)
from spark_groups.spark.control.query_start import STARTS_MAX, connected_too_late
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.processing.kafka_record import Record
from tests.runtime.members import committed
from tests.spark.connect_client import started
from tests.spark.processing.topics import Seen, poisoned, records_in
from tests.spark.queries import READ_S
from workshop.parts.brokers import create_topic, produce
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


def run(writer: Any) -> None:
    """Run a query to its end, which its trigger brings; again as `started` does."""
    for _ in range(STARTS_MAX):
        query = started(writer)
        wait_until(lambda query=query: not query.isActive, READ_S, "the end of the query")
        failure = query.exception()
        if failure is None:
            return
        if not connected_too_late(str(failure)):
            raise failure
    raise AssertionError("the query did not start")


@dataclass(frozen=True)
class Client:
    """What a client does with a topic, each in a group of its own.

    Args:
        servers: The brokers.
        group_id: How the groups' names begin.
        topic: The topic.
        directory: For what it writes.
        stream: Returns a stream of a group.
        write: Returns its writer.
    """

    servers: str
    group_id: str
    topic: str
    directory: Path
    stream: Callable[..., Any]
    write: Callable[[Any, str], Any]

    def seen_of_functions(self) -> dict[str, Any]:
        """Return what functions of foreachBatch have done, and what they are refused with."""
        process = Seen(self.directory / "processed")
        create_topic(self.servers, f"{self.topic}.{self.group_id}-process.dead-letter", 1)
        handle = process.noting(poisoned({b"3", b"17"}))
        processing = process_records(handle, SkipOrDeadLetter(record_deadline_s=1.0))
        self._committed_at_once("process", processing)
        letters = records_in(self.servers, f"{self.topic}.{self.group_id}-process.dead-letter")
        place = str(self.directory / "read")
        self._committed_at_once(
            "read", foreach_batch_rows(lambda rows, _: rows.write.mode("append").parquet(place))
        )
        limited = foreach_batch_rows(lambda *_: None, {"kafka.max.poll.records": "7"})
        again = process_records(
            process.noting(lambda _: None),
            SkipOrDeadLetter(at_last=AtLast.SKIP, record_deadline_s=1.0),
        )
        return {
            "processed": sorted(each.decode() for each in process.values().elements()),
            "letters": sorted(each.value.decode() for each in letters if each.value is not None),
            "relinquished": self._relinquished(),
            "further options": self._refusal("limited", limited),
            "processed, filtered": self._refusal("filtered", again, condition="partition = 0"),
            "read, filtered": self._refusal(
                "filtered-read", foreach_batch_rows(print), condition="partition = 0"
            ),
            "processed records": self._refusal("records", again, emit="records"),
        }

    def seen_of_listener(self, spark: Any) -> dict[str, Any]:
        """Return what a listener on the server's host has seen of two queries of one group."""
        place = self.directory / "moved"
        place.mkdir()

        def note(change: str) -> Callable[[PartitionsMoved], None]:
            def noted(moved: PartitionsMoved) -> None:
                text = f"{len(moved.partitions)} {os.getpid()} {moved.deadline_s}"
                (place / change).write_text(text, encoding="utf-8")

            return noted

        listener = spark_groups.listen(
            spark, on_assigned=note("assigned"), on_revoked=note("revoked")
        )
        queries = [self._start("listened", "noop")]
        self._await_commit("listened")
        queries.append(self._start("listened", "noop", checkpoint="other", every="1 second"))
        wait_until((place / "revoked").exists, READ_S, "a revocation")
        for each in queries:
            each.stop()
        listener.close()
        once = refusal(lambda: run(self._writer("once").trigger(once=True).format("noop")))
        found = {each.name: each.read_text(encoding="utf-8").split() for each in place.iterdir()}
        return {"moved": found, "client": os.getpid(), "once": once}

    def _writer(self, name: str, *, condition: str = "true", emit: str = "ranges") -> Any:
        rows = self.stream(
            emit=emit, includeHeaders="true", **{"kafka.group.id": f"{self.group_id}-{name}"}
        )
        return self.write(rows.where(condition) if condition != "true" else rows, name)

    def _start(self, name: str, form: Any, *, checkpoint: str = "", every: str = "1 hour") -> Any:
        """Start a query whose next trigger does not come, unless it comes often."""
        writer = self._writer(name)
        if checkpoint:
            writer = writer.option("checkpointLocation", str(self.directory / checkpoint))
        writer = writer.format(form) if isinstance(form, str) else writer.foreachBatch(form)
        return started(writer.trigger(processingTime=every))

    def _await_commit(self, name: str) -> None:
        group_id, ends = f"{self.group_id}-{name}", {}
        for each in records_in(self.servers, self.topic):
            ends[each.topic, each.partition] = each.offset + 1
        wait_until(lambda: committed(self.servers, group_id) == ends, READ_S, f"offsets of {name}")

    def _committed_at_once(self, name: str, function: Any) -> None:
        query = self._start(name, function)
        self._await_commit(name)
        query.stop()

    def _refusal(self, name: str, function: Any, **given: str) -> str:
        writer = self._writer(name, **given).foreachBatch(function).trigger(availableNow=True)
        return refusal(lambda: run(writer))

    def _relinquished(self) -> list[int]:
        """Return how often a query was started, and how many records were processed in the end."""
        seen, marker = Seen(self.directory / "noted"), self.directory / "second"
        starts: list[int] = []

        def fail(_: Record) -> None:
            if not marker.exists():
                raise ValueError

        processing = process_records(seen.noting(fail), Relinquish(batch_deadline_s=15.0))

        def start() -> Any:
            if starts:
                marker.touch()
            starts.append(1)
            writer = self._writer("relinquished").foreachBatch(processing)
            return started(writer.trigger(availableNow=True))

        processing.run(start)
        return [len(starts), len(set(seen.offsets()))]


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

    def run_available(writer: Any) -> None:
        run(writer.trigger(availableNow=True))

    def write(rows: Any, name: str) -> Any:
        checkpoint = str(directory / name / "checkpoint")
        return rows.writeStream.option("checkpointLocation", checkpoint)

    seen: dict[str, Any] = {"session": type(spark).__module__}
    run_available(write(stream(), "all").format("parquet").option("path", str(directory / "rows")))
    seen["rows"] = spark.read.parquet(str(directory / "rows")).count()
    seen["left"] = state()
    produce(servers, topic, [b"unread"] * 3)
    seen["backlog"] = backlog()
    spark_groups.register(spark)
    seen["backlog of the registered source"] = backlog()
    query = started(write(stream(), "stays").format("noop"))

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
    seen["stop_on_sigterm"] = refusal(lambda: stop_on_sigterm(spark))
    client = Client(servers, group_id, topic, directory, stream, write)
    seen |= client.seen_of_functions()
    read = spark.read.parquet(str(directory / "read"))
    seen["read"] = sorted(row.value.decode() for row in read.collect())
    seen["columns"] = read.columns
    seen |= client.seen_of_listener(spark)
    seen |= seen_of_tables(
        directory,
        lambda emit, group: stream(emit=emit, **{"kafka.group.id": f"{group_id}-{group}"}),
        write,
        run_available,
    )
    (directory / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
