"""A group of classic consumers moves to a Spark query and back, as the how-to describes it.

With -s, the long tests print the longest pause of each partition in each step.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import GroupNotFoundError
from spark_groups.observation.observe import describe_any_group
from spark_groups.observation.reading import GroupType
from spark_groups.wire.cluster import Cluster
from tests.cli.commands import invoke
from tests.documents import ROOT, blocks_of, commands_of
from tests.runtime.classic import ClassicConsumer, PlainConsumer
from tests.runtime.members import all_at, committed, fill
from tests.spark.queries import GroupQuery
from tests.spark.shared_group import PARTITIONS
from workshop.parts.applications import Application
from workshop.parts.brokers import create_topic
from workshop.parts.handover_diary import Event, pauses
from workshop.parts.waiting import wait_until
from workshop.parts.written import rows_written

pytestmark = [pytest.mark.broker, pytest.mark.spark]

HOW_TO = ROOT / "docs" / "how-to" / "migrate_a_classic_group.md"
PRODUCE_EVERY_S = 0.05
START_S = 400.0
MOVE_S = 400.0
STEADY_READS = 60
TERMINATED = 143
NEW_PROTOCOL = {"group.protocol": "consumer"}


def play(group_id: str, servers: str, command: str) -> str:
    """Run a command of `spark-groups` as the how-to has it; returns what it prints."""
    texts = [b for b in blocks_of(HOW_TO.read_text(encoding="utf-8")) if b.language == "bash"]
    commands = [shlex.split(each) for block in texts for each in commands_of(block)]
    found = next(each for each in commands if each[:2] == ["spark-groups", command])
    names = {"flight-readers": group_id, "localhost:9092": servers}
    done = invoke(*(names.get(each, each) for each in found[1:]))
    assert done.exit_code == 0, done.output
    return done.stdout


def assert_read_once(
    consumers: Iterable[PlainConsumer], by_spark: list[tuple[int, int]], ends: dict[int, int]
) -> None:
    """Every record was read by exactly one member, once; both kinds of members read some."""
    consumed = [(each.partition, each.offset) for one in consumers for each in one.reads]
    assert consumed
    assert by_spark
    counts = Counter([*consumed, *by_spark])
    assert set(counts) == {(partition, at) for partition, end in ends.items() for at in range(end)}
    assert [row for row, count in counts.items() if count > 1] == []


def test_a_query_takes_over_from_a_classic_consumer_and_returns_the_group(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path)
    rows_each = 0

    def more() -> None:
        nonlocal rows_each
        rows_each += 20
        fill(servers, topic_name, 2, 20)
        everything = all_at(topic_name, 2, rows_each)
        wait_until(lambda: committed(servers, group_id) == everything, MOVE_S, "all commits")

    def consumer() -> ClassicConsumer:
        return ClassicConsumer(servers, group_id, topic_name, "range")

    with consumer() as before:
        before.await_partitions(2)
        more()
        assert "can join now" in play(group_id, servers, "preflight")
        with query.running():
            before.await_partitions(1)
            more()
            before.close()
            more()
            after = consumer()
            with after:
                after.await_partitions(1)
                more()
                query.spark.streams.active[-1].stop()
                after.await_partitions(2)
                more()
    rows = [(row["partition"], row["offset"]) for row in query.rows()]
    assert_read_once([before, after], rows, {0: rows_each, 1: rows_each})


@contextmanager
def producing(servers: str, topic: str) -> Iterator[Callable[[], dict[int, int]]]:
    """Write a record to each partition every 50 ms; yields what ends it, and counts them."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
    ending = threading.Event()
    ends = dict.fromkeys(range(PARTITIONS), 0)

    def produce() -> None:
        while not ending.wait(PRODUCE_EVERY_S):
            for partition in ends:
                producer.produce(topic, b"v", partition=partition)
                ends[partition] += 1
            producer.poll(0)

    def stop() -> dict[int, int]:
        ending.set()
        thread.join()
        assert producer.flush(30) == 0
        return ends

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield stop
    finally:
        stop()


class Move:
    """A group of consumers with librdkafka's own timeouts, and later of a Spark application.

    Args:
        kafka: The broker.
        names: The ids of group and topic.
        directory: Where the application writes.
    """

    def __init__(self, kafka: EmbeddedKafka, names: tuple[str, str], directory: Path) -> None:
        self.servers = kafka.bootstrap_servers
        self.group_id, self.topic = names
        self.directory = directory
        self.consumers: list[PlainConsumer] = []
        self.ended: list[PlainConsumer] = []
        self.application: Application | None = None
        self.found: dict[str, dict[int, float]] = {}
        self.cluster = Cluster(self.servers)
        create_topic(self.servers, self.topic, PARTITIONS)

    def start_classic(self, strategy: str = "range") -> None:
        found = ClassicConsumer(self.servers, self.group_id, self.topic, strategy, {})
        self.consumers.append(found.__enter__())

    def start_of_new_protocol(self) -> None:
        found = PlainConsumer(self.servers, self.group_id, self.topic, NEW_PROTOCOL)
        self.consumers.append(found.__enter__())

    def end_consumer(self, index: int = 0) -> None:
        consumer = self.consumers.pop(index)
        consumer.close()
        self.ended.append(consumer)

    def submit(self) -> None:
        settings = {
            "source.kafka.bootstrap.servers": self.servers,
            "source.kafka.group.id": self.group_id,
            "source.subscribe": self.topic,
            "query.trigger": "0s",
        }
        self.application = Application(self.directory, "flights-1", settings)

    def terminate(self) -> None:
        assert self.application is not None
        assert self.application.terminate() == TERMINATED, self.application.log.read_text()[-2000:]

    def close(self) -> None:
        while self.consumers:
            self.end_consumer()
        if self.application is not None:
            self.application.close()
        self.cluster.close()

    def is_shared(self, members: int) -> bool:
        """Return whether so many members own the same number of partitions each."""
        share = PARTITIONS // members
        theirs = [len(each.partitions) for each in self.consumers]
        if theirs != [share] * len(theirs):
            return False
        try:
            _, described = describe_any_group(self.cluster, self.group_id)
        except GroupNotFoundError:
            # It does not exist yet, or was converted between two requests.
            return False
        sizes = [len(each.assignment.partitions) for each in described.members]
        return described.group_state == "Stable" and sizes == [share] * members

    def events(self) -> list[Event]:
        """Return when each partition was read: a row by a consumer, a batch by the application."""
        found = [
            Event("rows", each.at_s, (each.partition,))
            for consumer in (*self.consumers, *self.ended)
            for each in list(consumer.reads)
        ]
        batches = self.application.batches() if self.application is not None else []
        found += [
            Event("rows", each.finished_at, tuple(r.partition for r in each.plan.ranges))
            for each in batches
            if each.finished_at is not None
        ]
        return found

    def await_reads(self, since_s: float, reads: int = PARTITIONS) -> float:
        """Wait until each partition was read, and return when; `reads` rows or batches in all."""

        def is_read() -> bool:
            times = [each for each in self.events() if each.at_s > since_s]
            partitions = {partition for each in times for partition in each.partitions}
            return len(partitions) == PARTITIONS and len(times) >= reads

        wait_until(is_read, MOVE_S, "rows of each partition")
        return time.time()

    def step(self, name: str, act: Callable[[], object], members: int) -> None:
        """Act, wait until the members share the group and read, and note the pauses."""
        began_s = time.time()
        act()
        wait_until(lambda: self.is_shared(members), START_S, f"{name}: {members} to share")
        ended_s = self.await_reads(time.time())
        self.found[name] = pauses(self.events(), range(PARTITIONS), began_s, ended_s)

    def rest(self, name: str) -> None:
        """Note the pauses while nothing happens."""
        began_s = self.await_reads(time.time())
        ended_s = self.await_reads(began_s, STEADY_READS)
        self.found[name] = pauses(self.events(), range(PARTITIONS), began_s, ended_s)

    def end(self, stop_producing: Callable[[], dict[int, int]], title: str) -> None:
        """Read the rest, print the pauses, and check that each record was read once."""
        ends = stop_producing()
        assert self.application is not None
        by_spark = rows_written(self.application)
        everything = {(partition, at) for partition, end in ends.items() for at in range(end)}

        def is_read() -> bool:
            consumers = (*self.consumers, *self.ended)
            return everything <= set(by_spark).union(*(each.rows for each in consumers))

        wait_until(is_read, MOVE_S, "the last records")
        self.close()
        lines = [f"\n{title}, {len(everything)} records; longest pause of each partition (s):"]
        for name, found in self.found.items():
            cells = " ".join(f"{found[each]:6.2f}" for each in sorted(found))
            lines.append(f"{cells}  {name}")
        print("\n".join(lines))
        assert_read_once(self.ended, by_spark, ends)


@pytest.fixture
def names(group_id: str, topic_name: str) -> tuple[str, str]:
    return group_id, topic_name


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "version",
    [
        "4.3.1",
        pytest.param("4.0.0", marks=pytest.mark.slow),
        pytest.param("4.4.0", marks=pytest.mark.slow),
    ],
)
def test_the_how_to_moves_a_group_to_spark_and_back(
    kafka_version: Callable[[str], EmbeddedKafka],
    version: str,
    strategy: str,
    names: tuple[str, str],
    tmp_path: Path,
) -> None:
    # librdkafka's cooperative-sticky can be converted only before the second consumer joins.
    count = 2 if strategy == "range" else 1
    move = Move(kafka_version(version), names, tmp_path)
    with ExitStack() as running:
        running.callback(move.close)
        stop_producing = running.enter_context(producing(move.servers, move.topic))
        for members in range(1, count + 1):
            move.start_classic(strategy)
            wait_until(lambda members=members: move.is_shared(members), MOVE_S, "its share")
        move.rest("classic consumers only")
        wait_until(lambda: len(committed(move.servers, move.group_id)) == PARTITIONS, MOVE_S)
        assert "can join now" in play(move.group_id, move.servers, "preflight")
        move.step("the query joins", move.submit, count + 1)
        assert "Stable" in play(move.group_id, move.servers, "describe")
        move.rest("classic consumers and the query")
        for members in range(count, 0, -1):
            move.step(f"a classic consumer leaves, {members} left", move.end_consumer, members)
        move.rest("the query only")
        move.step("a classic consumer returns", lambda: move.start_classic(strategy), 2)
        move.step("the query ends", move.terminate, 1)
        assert describe_any_group(move.cluster, move.group_id)[0] is GroupType.CLASSIC
        move.end(stop_producing, f"Kafka {version}, {count} x {strategy}")


@pytest.mark.long
def test_a_query_that_joins_a_group_that_was_converted_before_joins_warm(
    kafka: EmbeddedKafka, names: tuple[str, str], tmp_path: Path
) -> None:
    move = Move(kafka, names, tmp_path)
    with ExitStack() as running:
        running.callback(move.close)
        stop_producing = running.enter_context(producing(move.servers, move.topic))
        move.start_classic()
        move.rest("the classic consumer only")
        move.step("a consumer of the new protocol joins", move.start_of_new_protocol, 2)
        move.step("the query joins", move.submit, 3)
        move.step("the consumer of the new protocol leaves", lambda: move.end_consumer(1), 2)
        move.step("the classic consumer leaves", move.end_consumer, 1)
        move.rest("the query only")
        move.step("a classic consumer returns", move.start_classic, 2)
        move.step("the query ends", move.terminate, 1)
        move.end(stop_producing, "Kafka 4.3.1, converted before the query joins")
