"""The Spark member of `make load` and `make soak`, as a process of its own.

    python -m workshop.benchmarks.load_spark JSON

JSON has the fields of `Query`. The rows go to the `noop` sink, so that only the source is measured.
Like a job it has a listener, a registered source, Python workers that start early, and a clean end
by SIGTERM. The heap is touched at the start, so that resident memory grows only outside the heap.
The notes have the content of the heap after a collection, and the size of the loaded classes; the
JVM itself limits compiled code (`ReservedCodeCacheSize`), and fills that cache for hours.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups import listen, start
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.jobs.run import start_workers
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.source.registration import register
from workshop.parts.applications import kill_everything, start_module

LOOK_S: Final = 0.2
COLLECT_S: Final = 15.0
END_S: Final = 120.0
METASPACE: Final = "Metaspace"
"""The JVM's pool of loaded classes."""
MB: Final = 1024 * 1024


@dataclass(frozen=True)
class Query:
    """A query of one topic.

    Args:
        directory: Holds its checkpoint, its notes and its log.
        servers: Bootstrap servers.
        group_id: Its group.
        topic: Its topic.
        trigger_s: Seconds from trigger to trigger.
        heap_mb: The heap of the JVM.
        options: Further options of the source.
    """

    directory: str
    servers: str
    group_id: str
    topic: str
    trigger_s: float = 1.0
    heap_mb: int = 512
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self.directory, "checkpoint")

    @property
    def notes(self) -> Path:
        """The file with a line for each batch and each collection of the heap."""
        return Path(self.directory, "notes.jsonl")

    @property
    def log(self) -> Path:
        """The file with everything that the process prints."""
        return Path(self.directory, "log")


@contextlib.contextmanager
def running(query: Query) -> Iterator[subprocess.Popen[bytes]]:
    """Run a query in a process of its own, and end it in order."""
    Path(query.directory).mkdir(parents=True, exist_ok=True)
    process = start_module("workshop.benchmarks.load_spark", asdict(query), query.log)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(END_S)
    finally:
        if process.poll() is None:
            kill_everything(process)


def notes_of(query: Query, kind: str) -> list[Mapping[str, Any]]:
    """Return the notes of a kind, `batch` or `memory`, so far."""
    if not query.notes.exists():
        return []
    # The last line may be half written.
    lines = query.notes.read_text(encoding="ascii").split("\n")[:-1]
    found = [json.loads(line) for line in lines]
    return [each for each in found if each["kind"] == kind]


def main(query: Query) -> None:
    """Read with a Structured Streaming query until SIGTERM."""
    heap = f"{query.heap_mb}m"
    spark = (
        SparkSession.builder.master("local[2]")
        .config(UNIX_SOCKETS, "true")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", heap)
        .config("spark.driver.extraJavaOptions", f"-Xms{heap} -XX:+AlwaysPreTouch")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    end = stop_on_sigterm(spark)
    listen(spark)
    register(spark)
    running_query = start(
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", query.servers)
        .option("kafka.group.id", query.group_id)
        .option("subscribe", query.topic)
        .options(**query.options)
        .load()
        .writeStream.format("noop")
        .trigger(processingTime=f"{query.trigger_s:g} seconds")
        .option("checkpointLocation", str(query.checkpoint))
    )
    start_workers(spark, RangeSettings(bootstrap_servers=(), group_id=""))
    notes = threading.Thread(target=_note, args=(spark, running_query, query.notes), daemon=True)
    notes.start()
    end.await_termination(running_query)


def _note(spark: SparkSession, query: StreamingQuery, path: Path) -> None:
    """Note each batch, and the heap after a collection, until the query ends."""
    jvm = spark.sparkContext._jvm
    management = jvm.java.lang.management.ManagementFactory
    memory = management.getMemoryMXBean()
    pools = {each.getName(): each for each in management.getMemoryPoolMXBeans()}
    noted, collected_at = -1, 0.0
    with path.open("a", encoding="ascii") as file, contextlib.suppress(Exception):
        # The JVM ends during a call.
        while query.isActive:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > noted:
                noted = progress["batchId"]
                batch = {"rows": progress["numInputRows"], "ms": dict(progress["durationMs"])}
                _write(file, {"kind": "batch", "batch_id": noted, **batch})
            if time.monotonic() - collected_at > COLLECT_S:
                collected_at = time.monotonic()
                jvm.java.lang.System.gc()
                heap, classes = memory.getHeapMemoryUsage(), pools[METASPACE].getUsage()
                used = {"heap_mb": heap.getUsed() / MB, "classes_mb": classes.getUsed() / MB}
                _write(file, {"kind": "memory", **used})
            time.sleep(LOOK_S)


def _write(file: Any, note: Mapping[str, Any]) -> None:
    file.write(json.dumps({"at_s": time.time(), **note}) + "\n")
    file.flush()


if __name__ == "__main__":
    main(Query(**json.loads(sys.argv[1])))
