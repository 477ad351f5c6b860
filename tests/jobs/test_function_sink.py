"""`jobs/consume.py` with `sink.format = "function"`, with what became of records in /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.runtime.snapshot_sockets import read_snapshots
from tests.jobs.submitted import SubmittedJob
from tests.monitoring.scraping import free_port, scrape
from tests.spark.processing.topics import records_in
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 20
RUN_S = 400.0


def sink(strategy: str, **options: str) -> list[str]:
    """Return the arguments that name a function and a strategy."""
    values = {
        "query.selectExpr": "[]",
        "sink.format": "function",
        "sink.options.function": "tests.jobs.shop_functions:book",
        "sink.options.strategy": strategy,
        **{f"sink.options.{name}": value for name, value in options.items()},
    }
    return [word for each in values.items() for word in ("--set", "=".join(each))]


def counted(port: int, group_id: str) -> dict[str, int]:
    """Return the counts of records that are not 0, from /metrics; those of `figures` are equal."""
    try:
        found = scrape(port)
    except OSError:
        return {}
    figures = {
        name: number
        for view in read_snapshots(group_id)
        for name, number in view.get("tally", {}).get("counts", {}).items()
        if name.startswith("records_") and number
    }
    shown = {name: found.value(f"{name}_total") for name in figures}
    return {
        name.removeprefix("records_"): number
        for name, number in figures.items()
        if shown[name] == number
    }


def committed(group_id: str) -> int:
    """Return the sum of the committed offsets of the group's member."""
    partitions = [each for view in read_snapshots(group_id) for each in view.get("partitions", ())]
    return sum(each.get("committed_offset") or 0 for each in partitions)


def has_ended(job: SubmittedJob) -> bool:
    return job.process.poll() is not None


def arguments(kafka: EmbeddedKafka, topic: str, group_id: str, port: int) -> Sequence[str]:
    return (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic, "--group", group_id),
        *("--trigger", "500ms", "--set", f"source.metricsPort={port}"),
    )


def test_dead_letters_and_retries_are_counted(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    letters = f"{topic_name}.{group_id}.dead-letter"
    for name in (topic_name, letters):
        create_topic(kafka.bootstrap_servers, name)
    never = str(tmp_path / "never").encode()
    values = [b"%d" % each for each in range(ROWS)] + [b"bad", never]
    produce(kafka.bootstrap_servers, topic_name, values)
    port = free_port()
    given = (
        *arguments(kafka, topic_name, group_id, port),
        *("--set", "source.includeHeaders=true"),
        *sink("SkipOrDeadLetter", recordDeadline="1s"),
    )
    with SubmittedJob(tmp_path, "job", given) as job:
        wanted = {"processed": ROWS, "dead_lettered": 2, "retried": 1}
        wait_until(lambda: counted(port, group_id) == wanted or has_ended(job), RUN_S, "the counts")
        assert counted(port, group_id) == wanted, job.text()
    found = [each.value for each in records_in(kafka.bootstrap_servers, letters)]
    assert found == [b"bad", never]


def test_job_joins_again_after_it_has_relinquished_and_counts_it(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    go = tmp_path / "go"
    values = [b"%d" % each for each in range(ROWS)] + [str(go).encode(), b"last"]
    produce(kafka.bootstrap_servers, topic_name, values)
    port = free_port()
    given = (
        *arguments(kafka, topic_name, group_id, port),
        *sink("Relinquish", batchDeadline="10s"),
    )
    with SubmittedJob(tmp_path, "job", given) as job:
        wait_until(
            lambda: counted(port, group_id).get("relinquished", 0) >= 2 or has_ended(job),
            RUN_S,
            "a run after the one that has relinquished",
        )
        assert "the query left its group and is joining again" in job.text(), job.text()
        go.touch()
        wait_until(
            lambda: committed(group_id) == ROWS + 2 or has_ended(job),
            RUN_S,
            "the commit of the batch",
        )
        assert counted(port, group_id)["relinquished"] >= 2, job.text()
