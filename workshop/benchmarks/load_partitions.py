"""A part of `make load`: one Spark member that owns every partition of a large topic."""

from __future__ import annotations

import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import parse_plan_text, plan_text
from workshop.benchmarks.load_spark import Query, notes_of, running
from workshop.benchmarks.member_watch import MemberWatch
from workshop.benchmarks.processes import usage_by_role, usage_of
from workshop.benchmarks.triggers import IN_MEMORY, PATIENT, generate
from workshop.parts.waiting import wait_until

GROUP: Final = "many-partitions"
WAIT_S: Final = 900.0
HEARTBEATS_LEAST: Final = 20
LOOK_S: Final = 2.0
"""A snapshot of so many partitions is large; heartbeats have 5 s between them."""


def measure_partitions(partitions: int, batches: int, directory: Path) -> dict[str, Any]:
    """Read one record of each partition in each batch, then stay until enough heartbeats were sent.

    Args:
        partitions: The partitions of the topic.
        batches: How many batches count, after the first.
        directory: For the query.
    """
    # Each partition syncs files of its own.
    place = IN_MEMORY if IN_MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as logs,
        EmbeddedKafka(
            heap_mb=1024,
            log_dir=Path(logs, "kafka"),
            server_properties=PATIENT,
            start_timeout_s=WAIT_S,
        ) as kafka,
    ):
        topic = generate(kafka.bootstrap_servers, partitions, batches + 1)
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(partitions)}
        query = Query(
            str(directory), kafka.bootstrap_servers, GROUP, topic, heap_mb=1024, options=options
        )
        with running(query) as process, MemberWatch(GROUP) as spark:
            began_at = time.monotonic()
            wait_until(lambda: len(spark.view.get("assigned", ())) == partitions, WAIT_S)
            assigned_at = time.monotonic()
            spark.look_s = LOOK_S

            def has_read() -> bool:
                read = [each for each in notes_of(query, "batch") if each["rows"]]
                return len(read) > batches and not spark.view["uncommitted"]

            wait_until(has_read, WAIT_S, "the batches")
            wait_until(
                lambda: spark.view["tally"]["counts"]["heartbeat"] >= HEARTBEATS_LEAST, WAIT_S
            )
            late_s = list(spark.late_s(began_at, time.monotonic()))
            assert kafka.pid is not None
            broker = usage_of(kafka.pid)
            assert broker is not None
            memory_mb = {role: used.memory_mb for role, used in usage_by_role(process.pid).items()}
            tally = spark.view["tally"]
        read = [each["ms"] for each in notes_of(query, "batch") if each["rows"]][1:]
        assert spark.first_seen_at is not None
        return {
            "partitions": partitions,
            "batches": len(read),
            "assigned_s": assigned_at - max(began_at, spark.first_seen_at),
            "phases_ms": {
                name: statistics.median(e.get(name, 0) for e in read) for name in read[0]
            },
            "commit": tally["took"]["commit_latency"],
            "commits": tally["counts"]["commit"],
            "failed": {
                name: tally["counts"][name]
                for name in ("heartbeat_failed", "commit_failed", "memberships_lost")
            },
            "heartbeats_late_s": late_s,
            "heartbeats_at_most_s": spark.at_most_s,
            "heartbeat_answers": tally["took"]["heartbeat_response_time"],
            "memory_mb": {**memory_mb, "broker": broker.memory_mb},
            **_plan_figures(query.checkpoint),
        }


def _plan_figures(checkpoint: Path) -> dict[str, Any]:
    """Return the size of the last plan in the offset log, and the time and memory of its text."""
    entries = [each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()]
    last = max(entries, key=lambda each: int(each.name))
    text = last.read_text(encoding="utf-8").splitlines()[-1]
    began_at = time.perf_counter()
    plan = parse_plan_text(text)
    parsed_at = time.perf_counter()
    assert plan is not None
    assert plan_text(plan) == text
    written_at = time.perf_counter()
    tracemalloc.start()
    kept = parse_plan_text(text)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept == plan
    return {
        "offset_log_entry_bytes": last.stat().st_size,
        "ranges": len(plan.ranges),
        "plan_parsed_ms": (parsed_at - began_at) * 1000,
        "plan_written_ms": (written_at - parsed_at) * 1000,
        "plan_peak_mb": peak_bytes / 1024 / 1024,
    }
