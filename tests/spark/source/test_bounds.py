"""Reads bounded by offsets and timestamps have the rows of Spark's own source, or fail like it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.batch_read import read_backlog
from spark_groups.spark.source.query_run import QueryRun
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from tests.runtime.members import committed
from tests.spark.source.query_run_setup import until_rows
from workshop.parts.applications import REPOSITORY
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.connector import fetch_connector
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PROGRAM_S = 1500
ROWS = (10, 6)
"""Records by partition, one per minute: the second partition ends four minutes earlier."""
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def first_ms() -> int:
    """The timestamp of the first records; young enough to be retained."""
    return int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS


@pytest.fixture
def timed(kafka: EmbeddedKafka, topic_name: str, first_ms: int) -> str:
    """A topic whose records have the timestamps of successive minutes."""
    create_topic(kafka.bootstrap_servers, topic_name, len(ROWS))
    rows = [
        Row(b"%d" % minute, partition=partition, timestamp_ms=first_ms + minute * MINUTE_MS)
        for partition, count in enumerate(ROWS)
        for minute in range(count)
    ]
    produce(kafka.bootstrap_servers, topic_name, rows)
    return topic_name


def at(first_ms: int, minute: float) -> str:
    """Return a minute of the topic as an option."""
    return str(first_ms + round(minute * MINUTE_MS))


def spans(*spans: tuple[int, int]) -> list[list[int]]:
    """Return the rows of a span of offsets for each partition."""
    return [[partition, offset] for partition, span in enumerate(spans) for offset in range(*span)]


def starts(topic: str, first_ms: int) -> dict[str, tuple[dict[str, str], Any]]:
    """Return options by what they mean, with the rows or a word of the error of each source."""

    def by_time(*minutes: float) -> str:
        named = {str(index): int(at(first_ms, each)) for index, each in enumerate(minutes)}
        return json.dumps({topic: named})

    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    without = ("No offset matched", "no record there has this timestamp")
    return {
        "a timestamp": ({"startingTimestamp": at(first_ms, 4)}, spans((4, 10), (4, 6))),
        "between records": ({"startingTimestamp": at(first_ms, 3.5)}, spans((4, 10), (4, 6))),
        "later than a log": ({"startingTimestamp": at(first_ms, 7)}, without),
        "later than a log, from latest": (
            {"startingTimestamp": at(first_ms, 7), **latest},
            spans((7, 10)),
        ),
        "by partition": ({"startingOffsetsByTimestamp": by_time(8, 2)}, spans((8, 10), (2, 6))),
        "by partition, later than a log": (
            {"startingOffsetsByTimestamp": by_time(8, 20)},
            without,
        ),
        "precedence": (
            {
                "startingTimestamp": at(first_ms, 5),
                "startingOffsetsByTimestamp": by_time(0, 0),
                "startingOffsets": "earliest",
            },
            spans((5, 10), (5, 6)),
        ),
        "precedence over offsets": (
            {"startingOffsetsByTimestamp": by_time(1, 5), "startingOffsets": "earliest"},
            spans((1, 10), (5, 6)),
        ),
        "no number": ({"startingTimestamp": "soon"}, ("single long value", "not a timestamp")),
    }


def batches(topic: str, first_ms: int) -> dict[str, tuple[dict[str, str], Any]]:
    """Return the same for batch reads."""

    def by_partition(*values: int) -> str:
        return json.dumps({topic: {str(index): each for index, each in enumerate(values)}})

    def minutes(*values: int) -> str:
        return by_partition(*(int(at(first_ms, each)) for each in values))

    whole = spans((0, 10), (0, 6))
    return starts(topic, first_ms) | {
        "everything": ({}, whole),
        "offsets": (
            {"startingOffsets": by_partition(2, -2), "endingOffsets": by_partition(5, -1)},
            spans((2, 5), (0, 6)),
        ),
        "an end": ({"endingTimestamp": at(first_ms, 5)}, spans((0, 5), (0, 5))),
        "an end later than the logs": ({"endingTimestamp": at(first_ms, 20)}, whole),
        "ends by partition": (
            {"endingOffsetsByTimestamp": minutes(3, 20)},
            spans((0, 3), (0, 6)),
        ),
        "precedence of ends": (
            {
                "endingTimestamp": at(first_ms, 2),
                "endingOffsetsByTimestamp": minutes(3, 3),
                "endingOffsets": by_partition(1, 1),
            },
            spans((0, 2), (0, 2)),
        ),
        "a span of time": (
            {"startingTimestamp": at(first_ms, 2), "endingTimestamp": at(first_ms, 5)},
            spans((2, 5), (2, 5)),
        ),
        "a pattern": ({"subscribePattern": f"{topic[:-1]}.", "subscribe": ""}, whole),
        "from latest": ({"startingOffsets": "latest"}, ("can't be latest", "cannot start at lat")),
        "until earliest": ({"endingOffsets": "earliest"}, ("can't be earliest", "has no rows")),
        "an end before the start": (
            {"startingOffsets": by_partition(3, 3), "endingOffsets": by_partition(2, 4)},
            ("", "exceeds endingOffsets"),
        ),
        "a span of time that ends before it starts": (
            {"startingTimestamp": at(first_ms, 5), "endingTimestamp": at(first_ms, 2)},
            ("", "exceeds endingTimestamp"),
        ),
        "spans that end before they start": (
            {
                "startingOffsetsByTimestamp": minutes(5, 5),
                "endingOffsetsByTimestamp": minutes(2, 2),
            },
            ("", "exceeds endingOffsetsByTimestamp"),
        ),
        "an end of some partitions": (
            {"endingOffsets": by_partition(2)},
            ("start offsets don't match", "endingOffsets lacks"),
        ),
    }


@pytest.mark.long
@pytest.mark.timeout(PROGRAM_S + 60)
def test_rows_and_errors_are_those_of_sparks_own_source(
    kafka: EmbeddedKafka, timed: str, first_ms: int, tmp_path: Path
) -> None:
    cases = {"batch": batches(timed, first_ms), "stream": starts(timed, first_ms)}
    given: dict[str, Any] = {
        kind: {
            name: {"subscribe": timed, **options} if "subscribe" not in options else options
            for name, (options, _) in named.items()
        }
        for kind, named in cases.items()
    }
    given["batch"]["a pattern"].pop("subscribe")
    given["options"] = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    given["jars"] = ",".join(map(str, fetch_connector(pyspark.__version__)))
    (tmp_path / "given.json").write_text(json.dumps(given))
    with (tmp_path / "log").open("wb") as log:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.source.bounds_application", str(tmp_path)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(PYSPARK_PYTHON=sys.executable),
            timeout=PROGRAM_S,
            check=False,
        )
    assert ended.returncode == 0, (tmp_path / "log").read_text(errors="replace")[-6000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    expected = {
        f"{kind}: {name}": wanted
        for kind, named in cases.items()
        for name, (_, wanted) in named.items()
    }
    for name, wanted in expected.items():
        sparks, own = seen[name]["kafka"], seen[name]["kafka-group"]
        if isinstance(wanted, list):
            assert (sparks.get("rows"), own.get("rows")) == (wanted, wanted), (name, seen[name])
        else:
            assert wanted[0] in sparks.get("error", "no error"), (name, sparks)
            assert wanted[1] in own.get("error", "no error"), (name, own)


def test_batch_read_of_no_group_has_the_rows_of_a_span_of_time(
    spark: SparkSession, kafka: EmbeddedKafka, timed: str, first_ms: int
) -> None:
    servers = kafka.bootstrap_servers
    with Cluster(servers) as cluster:
        before = {each.group_id for each in cluster.list_groups()}
    bounds = {"startingTimestamp": at(first_ms, 2), "endingTimestamp": at(first_ms, 5)}
    options = {"kafka.bootstrap.servers": servers, "subscribe": timed, **bounds}
    rows = spark.read.format("kafka-group").options(**options).load().collect()
    found = sorted([row.partition, row.offset] for row in rows)
    assert found == spans((2, 5), (2, 5))
    missing = spark.read.format("kafka-group").options(**{**options, "subscribe": f"{timed}-no"})
    meant = rf"{timed}-no \(did you mean '{timed}'\?\) does not exist"
    with pytest.raises(PySparkException, match=meant):
        missing.load().collect()
    with Cluster(servers) as cluster:
        groups = {each.group_id for each in cluster.list_groups()}
    assert "spark-groups" not in groups - before, "it joined no group and committed nothing"


def test_batch_read_of_a_group_begins_at_its_committed_offsets_and_stops_at_the_named_end(
    kafka: EmbeddedKafka, timed: str, first_ms: int, group_id: str
) -> None:
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": group_id,
        "subscribe": timed,
    }
    run = QueryRun(SourceOptions.of({**given, "startingTimestamp": at(first_ms, 4)}))
    until_rows(run, NOTHING_PLANNED)
    servers = kafka.bootstrap_servers
    wait_until(
        lambda: committed(servers, group_id) == {(timed, 0): 4, (timed, 1): 4},
        what="the starts at the timestamp to be committed",
    )
    run.leave(20.0)

    def ranges(**changes: str) -> list[tuple[int, int, int]]:
        found = read_backlog(SourceOptions.of({**given, **changes}), ClusterIdentity())
        return [(each.partition, each.from_offset, each.until_offset) for each in found]

    assert ranges() == [(0, 4, 10), (1, 4, 6)]
    # The group's committed offsets go before any start.
    assert ranges(startingTimestamp=at(first_ms, 0)) == [(0, 4, 10), (1, 4, 6)]
    assert ranges(endingTimestamp=at(first_ms, 5)) == [(0, 4, 5), (1, 4, 5)]
    assert ranges(endingTimestamp=at(first_ms, 2)) == [], "the group has read all of that"
    with pytest.raises(OptionsError, match=f"endingOffsets lacks {timed}-1"):
        ranges(endingOffsets=json.dumps({timed: {"0": 5}}))
    with pytest.raises(OptionsError, match=f"do not exist or are not read: {timed}-7"):
        ranges(endingOffsets=json.dumps({timed: {"0": 5, "1": 5, "7": 5}}))
