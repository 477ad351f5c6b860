"""Asynchronous progress tracking: Spark's logs have holes, and a crash may replay, never skip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.types import BatchPlan
from tests.runtime.members import committed
from tests.spark.processing.topics import records_in
from workshop.parts.applications import kill_everything, start_module
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, produce
from workshop.parts.connector import fetch_connector
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
]

PARTITIONS = 2
EACH = 40
"""Rows per partition."""
LIMIT = 10
"""`maxOffsetsPerTrigger`: the rows of a batch."""
RUN_S = 400
RARELY_MS = 60_000
"""So that hardly more than the first batch of each run has an entry."""


@dataclass(frozen=True)
class Copy:
    """Applications of one group that copy a topic, one after the other, with one checkpoint."""

    servers: str
    topic: str
    group_id: str
    directory: Path
    listens: bool

    @property
    def output(self) -> str:
        return f"{self.topic}-copy"

    def fill(self) -> None:
        rows = [Row(b"v", partition=each) for each in range(PARTITIONS) for _ in range(EACH)]
        produce(self.servers, self.topic, rows)

    @contextmanager
    def running(self, interval_ms: int) -> Iterator[None]:
        """Run an application, and kill all its processes."""
        given = {
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "kafka.group.id": self.group_id,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(LIMIT),
            },
            "servers": self.servers,
            "output": self.output,
            "checkpoint": str(self.directory / "checkpoint"),
            "interval_ms": interval_ms,
            "listens": self.listens,
            "jars": ",".join(map(str, fetch_connector(pyspark.__version__))),
        }
        log = self.directory / "log"
        process = start_module("tests.spark.asynchronous_application", given, log)
        try:
            yield
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        finally:
            if process.poll() is None:
                kill_everything(process)

    def copied(self) -> Counter[str]:
        """Return how often each row was written, by partition and offset."""
        records = records_in(self.servers, self.output)
        return Counter((each.value or b"").decode() for each in records)

    def committed(self) -> list[int]:
        """Return the group's committed offset of each partition."""
        found = committed(self.servers, self.group_id)
        return [found.get((self.topic, each), 0) for each in range(PARTITIONS)]

    def logged(self, name: str = "offsets") -> list[int]:
        """Return the batches in one of Spark's logs."""
        return sorted(int(each.name) for each in self._log(name).glob("[0-9]*"))

    def plan(self, batch_id: int) -> BatchPlan:
        text = (self._log("offsets") / str(batch_id)).read_text().splitlines()[-1]
        plan = parse_plan_text(text)
        assert plan is not None
        return plan

    def keep(self, name: str, batch_ids: Collection[int]) -> None:
        """Leave these entries only, with Hadoop's checksums."""
        for batch_id in set(self.logged(name)) - set(batch_ids):
            for each in (str(batch_id), f".{batch_id}.crc"):
                (self._log(name) / each).unlink(missing_ok=True)

    def _log(self, name: str) -> Path:
        return self.directory / "checkpoint" / name

    def members(self) -> set[str]:
        client = admin(self.servers)
        (found,) = client.describe_consumer_groups([self.group_id]).values()
        return {each.member_id for each in found.result(ANSWER_S).members}


def places(*groups: tuple[int, int, int]) -> set[str]:
    """Return the rows of (partition, from_offset, until_offset)."""
    return {f"{index}-{each}" for index, first, until in groups for each in range(first, until)}


def rows_of(plan: BatchPlan) -> set[str]:
    return places(*((each.partition, each.from_offset, each.until_offset) for each in plan.ranges))


ALL = places(*((each, 0, EACH) for each in range(PARTITIONS)))
TWICE = places(*((each, 0, 2 * EACH) for each in range(PARTITIONS)))


@pytest.fixture(params=[True, False], ids=["listener", "alone"])
def copy(
    request: pytest.FixtureRequest,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
) -> Copy:
    found = Copy(kafka.bootstrap_servers, topic_name, group_id, tmp_path, request.param)
    create_topic(found.servers, found.topic, PARTITIONS)
    create_topic(found.servers, found.output)
    found.fill()
    return found


def read_all(copy: Copy, offset: int) -> None:
    """Wait until all rows are read, and watch that no committed offset goes back."""
    before = copy.committed()

    def is_over() -> bool:
        nonlocal before
        now = copy.committed()
        assert all(a <= b for a, b in zip(before, now, strict=True)), f"{before} became {now}"
        before = now
        return now == [offset] * PARTITIONS

    wait_until(is_over, RUN_S, "all rows")


def await_lead(copy: Copy, rows: int) -> None:
    """Wait until so many rows are committed, and Kafka is ahead of Spark's log."""

    def is_ahead() -> bool:
        offsets = copy.committed()
        if sum(offsets) < rows:
            return False
        last = copy.plan(copy.logged()[-1])
        ends = {each.partition: each.until_offset for each in last.ranges}
        return sum(offsets) - sum(ends.get(each, 0) for each in range(PARTITIONS)) > 2 * LIMIT

    wait_until(is_ahead, RUN_S, f"{rows} committed rows")


@pytest.mark.parametrize(
    ("offsets", "commits", "replayed"),
    [((0, 2, 5), (0, 2), 5), ((0, 2, 5), (0, 2, 5), None), ((0, 3), (0,), 3)],
    ids=["replayed", "finished", "older"],
)
def test_a_log_with_holes_is_replayed_from_its_last_entry_and_no_row_is_skipped(
    copy: Copy, offsets: tuple[int, ...], commits: tuple[int, ...], replayed: int | None
) -> None:
    # All batches are logged; those that a longer interval leaves out are removed afterwards.
    with copy.running(interval_ms=0):
        read_all(copy, EACH)
    wanted = ALL
    assert set(copy.copied()) == wanted
    plans = {each: copy.plan(each) for each in copy.logged()}
    copy.keep("offsets", offsets)
    copy.keep("commits", commits)
    before = copy.copied()
    (dead,) = {each.member_id for each in plans.values()}
    again = rows_of(plans[replayed]) if replayed is not None else set()
    assert len(again) == (0 if replayed is None else LIMIT)
    copy.fill()
    with copy.running(interval_ms=0):
        read_all(copy, 2 * EACH)
        assert dead not in copy.members()
        if replayed is not None:
            wait_until(lambda: replayed in copy.logged("commits"), what="the replayed batch")
    new = copy.copied() - before
    # The plan names its own ranges: batches between the entries are not read again.
    assert new == Counter(TWICE - ALL) + Counter(again)


def test_crashes_between_two_entries_of_the_logs_skip_no_row(copy: Copy) -> None:
    for _ in range(9):
        copy.fill()
    total = 10 * EACH
    for crash in range(1, 4):
        with copy.running(RARELY_MS):
            await_lead(copy, crash * 16 * LIMIT)
    with copy.running(RARELY_MS):
        read_all(copy, total)
    assert len(copy.logged()) < total * PARTITIONS / LIMIT / 2
    assert set(copy.copied()) == places(*((each, 0, total) for each in range(PARTITIONS)))
