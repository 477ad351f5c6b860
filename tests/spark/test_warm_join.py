"""A new application warms up before it joins, while another member reads on; killed at any step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from tests.runtime.members import QueryLike, all_at, committed, fill, queries
from tests.spark.queries import written_rows
from tests.spark.warm_application import Step
from workshop.parts.applications import REPOSITORY, kill_everything, start_module
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(
        not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a member joins without a warm-up"
    ),
]

START_S = 400
PARTITIONS = 4


@dataclass
class Place:
    """A topic, and a group of an application and a member that reads as long as the test runs."""

    servers: str
    topic: str
    group_id: str
    directory: Path
    rows_each: int = 0
    other: QueryLike = field(init=False)

    @contextmanager
    def read_by_another(self) -> Iterator[None]:
        """Run the other member's batches, each of which ends at once."""
        ending = threading.Event()
        with queries(self.servers, self.group_id, self.topic) as start:
            self.other = start()

            def read() -> None:
                while not ending.wait(0.05):
                    self.other.run()

            thread = threading.Thread(target=read)
            thread.start()
            try:
                yield
            finally:
                ending.set()
                thread.join()

    def write(self, rows_each: int = 50) -> None:
        fill(self.servers, self.topic, PARTITIONS, rows_each)
        self.rows_each += rows_each

    def await_read(self) -> None:
        everything = all_at(self.topic, PARTITIONS, self.rows_each)
        wait_until(
            lambda: committed(self.servers, self.group_id) == everything, START_S, "all commits"
        )

    @contextmanager
    def running(self, hold_at: Step | None = None, *, listens: bool) -> Iterator[Path]:
        """Run the application; it and all its processes are killed at the end, if they still run.

        Yields:
            The directory of its signs.
        """
        signs = self.directory / f"signs-{len(list(self.directory.glob('signs-*')))}"
        signs.mkdir()
        given = {
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "kafka.group.id": self.group_id,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
            },
            "directory": str(self.directory),
            "listens": listens,
        }
        process = start_module(
            "tests.spark.warm_application",
            given,
            signs / "log",
            PYTHONPATH=str(REPOSITORY),
            HOLD_AT=hold_at.name if hold_at else "",
            SIGNS=str(signs),
        )
        try:
            if hold_at is not None:
                held = signs / "held"
                wait_until(lambda: held.exists() or process.poll() is not None, START_S, "its step")
            assert process.poll() is None, (signs / "log").read_text()[-3000:]
            yield signs
            if (self.directory / "stop").exists():
                assert process.wait(START_S) == 0, (signs / "log").read_text()[-3000:]
        finally:
            if process.poll() is None:
                kill_everything(process)

    def warm_ups(self) -> list[int]:
        """Return the numbers of the application's warm-up batches."""
        found = []
        for path in (self.directory / "checkpoint" / "offsets").glob("[0-9]*"):
            plan = parse_plan_text(path.read_text().splitlines()[-1])
            if plan is not None and plan.warm_up_tasks:
                found.append(int(path.name))
        return sorted(found)

    def times_read(self) -> Counter[int]:
        """Return how many offsets were read how often, by both."""
        found = Counter(
            (partition, offset)
            for _, partition, from_offset, until_offset in self.other.ranges
            for offset in range(from_offset, until_offset)
        )
        found += Counter((row["partition"], row["offset"]) for row in written_rows(self.directory))
        return Counter(found.values())


@pytest.fixture
def place(kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path) -> Place:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    return Place(kafka.bootstrap_servers, topic_name, group_id, tmp_path)


def await_share(place: Place) -> None:
    """Wait until the application owns its share of the partitions."""
    wait_until(lambda: len(place.other.assigned) == PARTITIONS // 2, START_S, "its partitions")


def end(place: Place) -> None:
    """End the application after both members have read everything; each record was read once."""
    place.write()
    place.await_read()
    (place.directory / "stop").touch()


def test_the_first_batch_with_rows_has_warm_workers(place: Place) -> None:
    with place.read_by_another():
        place.write()
        place.await_read()
        with place.running(listens=True) as signs:
            # On a slow machine the member joins before, after 30 s.
            wait_until(lambda: len(list(signs.glob("warm-*"))) == 2, START_S, "the warm-up")
            assert place.warm_ups() == [0]
            warm = {each.name.partition("-")[2] for each in signs.glob("warm-*")}
            await_share(place)
            end(place)
        readers = {each.name.partition("-")[2]: each.read_text() for each in signs.glob("rows-*")}
        assert readers.keys() <= warm
        assert set(readers.values()) == {""}, "the first batch imports nothing"
    assert place.times_read() == {1: PARTITIONS * place.rows_each}


@pytest.mark.parametrize("step", Step, ids=lambda each: each.name)
def test_application_killed_in_its_warm_up_loses_and_repeats_nothing(
    place: Place, step: Step
) -> None:
    with place.read_by_another():
        place.write()
        with place.running(listens=False):
            await_share(place)
            place.write()
            place.await_read()
        for is_first in (True, False):
            with place.running(step, listens=False):
                if is_first and step is not Step.JOINED:
                    wait_until(lambda: len(place.other.assigned) == PARTITIONS, what="all of them")
                    place.write()
                    place.await_read()
            place.write()
        assert place.warm_ups()
        with place.running(listens=False):
            await_share(place)
            end(place)
    assert place.times_read() == {1: PARTITIONS * place.rows_each}
