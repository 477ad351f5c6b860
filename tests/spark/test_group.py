"""Two Spark applications and a plain consumer share a group: join, leave, SIGKILL."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed, describe
from tests.spark.shared_group import PARTITIONS, Feed
from workshop.parts.applications import REPOSITORY, Application
from workshop.parts.brokers import SHORT_SESSION, create_topic
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until
from workshop.parts.written import rows_written

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BATCH = 900


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(server_properties=SHORT_SESSION) as kafka:
        yield kafka


def sizes(broker: EmbeddedKafka, group_id: str) -> list[int]:
    described = describe(broker.bootstrap_servers, group_id)
    if described.group_state != "Stable":
        return []
    return sorted(len(each.assignment) for each in described.members)


def all_run(applications: list[Application]) -> bool:
    for each in applications:
        assert each.process.poll() is None, each.log.read_text()[-4000:]
    return True


def start_plain_consumer(
    broker: EmbeddedKafka, group_id: str, topic: str, path: Path
) -> subprocess.Popen[bytes]:
    module = [sys.executable, "-m", "tests.spark.plain_consumer"]
    arguments = [broker.bootstrap_servers, group_id, topic, str(path)]
    return subprocess.Popen([*module, *arguments], cwd=REPOSITORY, env=environment())


def assert_single_planner(applications: list[Application]) -> None:
    """No two batches of different members read one partition at one time."""
    spans = defaultdict(list)
    for application in applications:
        for batch in application.batches():
            for each in batch.plan.ranges:
                spans[each.partition].append((batch.planned_at, batch.finished_at, batch.plan))
    for of_one in spans.values():
        for before, after in itertools.pairwise(sorted(of_one, key=lambda span: span[0])):
            if before[2].member_id != after[2].member_id and before[1] is not None:
                assert before[1] <= after[0], (before, after)


def assert_never_paused(application: Application, kept: set[int], since: float) -> None:
    """Every batch since then reads all partitions that were kept: each has a backlog."""
    batches = [each for each in application.batches() if each.planned_at >= since]
    assert len(batches) >= 2, "the application continued to make batches"
    for batch in batches:
        assert kept <= {each.partition for each in batch.plan.ranges}, batch


def reads_all_of(application: Application, partitions: set[int]) -> float:
    """Wait for a batch that reads all these partitions and return when it was planned."""

    def found() -> float | None:
        last = application.batches()[-1]
        read = {each.partition for each in last.plan.ranges}
        return last.planned_at if partitions <= read else None

    planned_at = wait_until(found, 400, f"a batch of {application.name} that reads {partitions}")
    assert planned_at is not None
    return planned_at


def reads_on_until(application: Application, condition: Callable[[], bool]) -> None:
    """Wait for the condition as long as the application makes batches, however slow they are."""
    while not condition():
        planned = len(application.batches())
        wait_until(
            lambda planned=planned: condition() or len(application.batches()) > planned,
            400,
            f"the end, or another batch of {application.name} after {planned}",
        )


def owned_by(broker: EmbeddedKafka, group_id: str, application: Application) -> set[int]:
    member_id = application.batches()[-1].plan.member_id
    member = next(
        e for e in describe(broker.bootstrap_servers, group_id).members if e.member_id == member_id
    )
    return {key.partition for key in member.assignment}


def test_applications_and_a_plain_consumer_share_a_group(
    broker: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, PARTITIONS)
    settings = {
        "source.kafka.bootstrap.servers": broker.bootstrap_servers,
        "source.kafka.group.id": group_id,
        "source.subscribe": topic_name,
        "source.startingOffsets": "earliest",
        "source.maxOffsetsPerTrigger": str(BATCH),
        "query.trigger": "0s",
    }
    feed = Feed(broker.bootstrap_servers, topic_name, group_id)
    plain_path = tmp_path / "plain.txt"
    applications = [Application(tmp_path, name, settings) for name in ("first", "second")]
    plain = start_plain_consumer(broker, group_id, topic_name, plain_path)
    try:
        first, second = applications
        wait_until(
            lambda: all_run(applications) and sizes(broker, group_id) == [2, 2, 2],
            500,
            "all three to own a share",
        )
        wait_until(
            lambda: plain_path.stat().st_size > 0, timeout_s=400, what="rows of the plain consumer"
        )
        wait_until(lambda: all(len(each.batches()) for each in applications), 400)

        kept = owned_by(broker, group_id, first)
        left_at = reads_all_of(first, kept)
        plain.terminate()
        plain.wait(300)
        wait_until(lambda: sizes(broker, group_id) == [3, 3], 400, "the two to share all")
        assert kept <= owned_by(broker, group_id, first)
        reads_all_of(first, owned_by(broker, group_id, first))
        assert_never_paused(first, kept, left_at)

        kept = owned_by(broker, group_id, first)
        killed_at = reads_all_of(first, kept)
        second.kill()
        wait_until(lambda: sizes(broker, group_id) == [6], 400, "the survivor to own all")
        reads_all_of(first, set(range(PARTITIONS)))
        assert_never_paused(first, kept, killed_at)

        ends = {(topic_name, each): end for each, end in feed.stop().items()}
        reads_on_until(first, lambda: committed(broker.bootstrap_servers, group_id) == ends)
        assert first.terminate() == 143, first.log.read_text()[-2000:]
        assert describe(broker.bootstrap_servers, group_id).members == ()
    finally:
        feed.stop()
        plain.kill()
        plain.wait()
        for each in applications:
            each.close()

    assert_single_planner(applications)
    by_plain = [tuple(map(int, line.split())) for line in plain_path.read_text().splitlines()]
    by_spark = [row for each in applications for row in rows_written(each)]
    expected = {
        (partition, offset) for (_, partition), end in ends.items() for offset in range(end)
    }
    assert set(by_plain) | set(by_spark) == expected
